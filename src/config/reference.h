// Descriptions of keys as text.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"

namespace trainer::config {

// Lines of at most `width` characters, broken between words.
std::vector<std::string> wrap(const std::string& text, size_t width);

// Up to the first full stop, without it.
std::string first_sentence(const std::string& text);

// " No effect without optimizer.name: adafactor. Default with ...", or "".
std::string dependence(const Key& key);

// allowed_range() without an upper bound that is there against nonsense only.
std::string told_range(Key key);

// "Help. One of a, b. At least 1. Unit: tokens.", and its dependence.
std::string description(const Key& key);

}  // namespace trainer::config
