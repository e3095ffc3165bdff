// Views values as their bytes in memory and on disk.
#pragma once

#include <span>
#include <string_view>

namespace trainer {

template <class Value>
std::string_view bytes_of(std::span<const Value> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace trainer
