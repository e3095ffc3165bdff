#include "commands/find_model.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"

namespace trainer {

std::filesystem::path find_model(const std::string& path) {
  if (path.empty()) {
    throw ConfigError(
        "model.path: is required: a model's directory, or the name of a file of configs/models "
        "(flan-t5-xl, qwen2.5-7b, ...)");
  }
  if (std::filesystem::exists(path)) return path;
  if (const auto card = find_installed(concat("configs/models/", path, ".json"))) return *card;
  throw ConfigError(
      concat("model.path: '", path, "' is neither a directory nor the name of a file of configs/models"),
      ExitCode::files);
}

}  // namespace trainer
