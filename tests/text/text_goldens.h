// Where the goldens of this layer are.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(SOURCE_DIR) / "tests/goldens/text" / name;
}

}  // namespace trainer
