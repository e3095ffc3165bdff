// Collects what is wrong with a configuration, and checks what an objective needs.
#pragma once

#include <string>

#include "trainer/config/config.h"

#include "config/layer.h"

namespace trainer::config {

class Checker {
 public:
  explicit Checker(const Config& config) : config_(config) {}

  void require(bool holds, const std::string& key, const std::string& message,
               ExitCode code = ExitCode::usage) {
    if (!holds) problems.push_back({{origin(key)}, key, message, code, family_of(key, code)});
  }

  Problems problems;

 private:
  static ErrorCode family_of(const std::string& key, ExitCode code) {
    if (code == ExitCode::data) return ErrorCode::data_file;
    if (code != ExitCode::files) return ErrorCode::config_conflict;
    return key == "model.path"     ? ErrorCode::model_files
           : key == "lora.adapter" ? ErrorCode::adapter
           : key == "output_dir"   ? ErrorCode::output_dir
                                   : ErrorCode::files;
  }

  std::string origin(const std::string& key) const {
    const auto found = config_.origins.find(key);
    return found == config_.origins.end() ? "" : found->second;
  }

  const Config& config_;
};

// The rows that the objective needs, and what has no meaning for it.
void check_objective(const Config& config, Checker& check);

}  // namespace trainer::config
