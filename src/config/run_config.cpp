#include "config/run_config.h"

#include <fstream>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/effects.h"

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
  const Config asked = load_config(std::nullopt, overrides);
  try {
    Config config = load_config(*file, overrides);
    config.device = asked.device;
    config.gpu = asked.gpu;
    config.memory = asked.memory;
    config.parallel = asked.parallel;
    config.training.num_threads = asked.training.num_threads;
    std::error_code ignored;
    const bool has_own = fs::exists(model / "chat_template.jinja", ignored);
    if (has_own || !fs::exists(config.data.chat_template, ignored))
      config.data.chat_template = asked.data.chat_template;
    return config;
  } catch (const Error& error) {  // of another version of the program
    log::warning(concat(file->string(), ": is not used: ", first_line(error.what())));
    return std::nullopt;
  }
}

}  // namespace trainer
