// Shortens long lists for messages: names that come from files, of which there may be a million.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns the first `most` items and the number of the others: "a, b, c and 999,997 more".
std::string join_some(const std::vector<std::string>& items, size_t most = 10,
                      std::string_view separator = ", ");

}  // namespace trainer
