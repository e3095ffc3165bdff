// The folder with the goldens of this layer.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(SOURCE_DIR) / "tests/goldens/text" / name;
}

}  // namespace trainer
