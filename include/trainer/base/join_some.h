// Lists in messages that may be long: names from files, of which there may be a million.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// "a, b, c and 999,997 more": the first `most`.
std::string join_some(const std::vector<std::string>& items, size_t most = 10,
                      std::string_view separator = ", ");

}  // namespace trainer
