// Views values as their bytes, for memory and files.
#pragma once

#include <span>
#include <string_view>

namespace trainer {

template <class Value>
std::string_view bytes_of(std::span<const Value> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace trainer
