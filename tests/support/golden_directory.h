// Where a golden model is; tests/make_goldens/models says what is in its folder.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

inline std::filesystem::path golden_directory(const std::string& name) {
  return std::filesystem::path(SOURCE_DIR) / "tests/goldens/models" / name;
}

}  // namespace trainer
