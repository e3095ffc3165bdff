// Arguments of filters, tests and functions, bound to their parameters as Python does.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace trainer::jinja {

class Bound {
 public:
  // `names` are the parameters in order; the first `required` of them have no default. Throws RenderError
  // that names `function` if the arguments do not fit.
  Bound(const std::string& function, const Arguments& arguments, std::initializer_list<const char*> names,
        size_t required = 0);

  // The value of parameter i, or nullptr.
  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  const Value& at(size_t i) const { return *values_[i]; }
  bool truth(size_t i, bool fallback) const { return values_[i] ? values_[i]->truth() : fallback; }
  int64_t integer(size_t i, int64_t fallback) const;
  // A string argument. Throws RenderError for any other type.
  Text text(size_t i, const char* fallback = "") const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace trainer::jinja
