#include "config/run_config.h"

#include <fstream>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/effects.h"
#include "config/keys.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

bool is_written_by_a_run(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) && line.starts_with(config::kDumpBegins);
}

}  // namespace

std::optional<fs::path> config_file_of_run(const fs::path& model) {
  std::error_code ignored;
  fs::path directory = fs::absolute(model, ignored).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();
  if (directory.filename().string().starts_with("checkpoint-")) directory = directory.parent_path();
  const fs::path file = directory / "config.yaml";
  if (!fs::is_regular_file(file, ignored) || !is_written_by_a_run(file)) return std::nullopt;
  return file;
}

std::optional<Config> config_of_run(const fs::path& model, const std::vector<std::string>& overrides) {
  const auto file = config_file_of_run(model);
  if (!file) return std::nullopt;
  // What belongs to the machine of the run has its default again, or what the command says. Overrides are
  // read on top of the run, because some have an effect only beside what it says.
  std::vector<std::string> keys{"device=null", "training.num_threads=null"};
  for (const KeyValues& key : all_keys()) {
    if (key.section == "gpu" || key.section == "memory" || key.section == "parallel")
      keys.push_back(concat(key.section, ".", key.name, "=null"));
  }
  try {
    const std::string trained_with = load_config(*file, {}).data.chat_template;
    std::error_code ignored;
    if (fs::exists(model / "chat_template.jinja", ignored) || !fs::exists(trained_with, ignored))
      keys.emplace_back("data.chat_template=null");
  } catch (const Error& error) {  // of another version of the program
    log::warning(concat(file->string(), ": is not used: ", first_line(error.what())));
    return std::nullopt;
  }
  keys.insert(keys.end(), overrides.begin(), overrides.end());
  return load_config(*file, keys);
}

}  // namespace trainer
