// Filters and tests by name.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace trainer::jinja {

using Filter = Value (*)(const Value& value, const Arguments& arguments);
using Test = bool (*)(const Value& value, const Arguments& arguments);

// Each returns nullptr if there is none with that name.
Filter find_filter(const std::string& name);
Test find_test(const std::string& name);

// Whether jinja2 has a filter with this name that is not supported here.
bool is_foreign_filter(const std::string& name);

// The filters by subject.
Filter find_text_filter(const std::string& name);
Filter find_number_filter(const std::string& name);
Filter find_sequence_filter(const std::string& name);
Filter find_selecting_filter(const std::string& name);

}  // namespace trainer::jinja
