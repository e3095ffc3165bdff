// YAML file + extends + command-line overrides -> Config, and back to commented YAML.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/config.h"

namespace trainer {

// Reads `file` (none: only defaults and overrides), follows `extends:`, applies overrides "section.key=value"
// or, where a key's name is in one section only, "key=value". Relative paths in `extends` are relative to the
// file that says it. Throws ConfigError that lists every problem at once, each with file:line:column (or the
// override's text) and, for an unknown key, the closest known one or this program's name of a Hugging Face,
// LLaMA-Factory or axolotl key.
Config load_config(const std::optional<std::filesystem::path>& file,
                   const std::vector<std::string>& overrides);

// Everything a training run needs that can be checked without the model (required keys, contradictions
// between keys, existing files): one message a problem, empty when all is well. load_config does not call it.
std::vector<std::string> check_for_training(const Config& config);

// The same with the key and the exit code that each stands for.
struct TrainingProblem {
  std::string key, text;  // the text names file, line and key, too
  ExitCode code;
};
std::vector<TrainingProblem> problems_for_training(const Config& config);

// load_config followed by check_for_training, with the problems of both in one ConfigError.
Config load_training_config(const std::optional<std::filesystem::path>& file,
                            const std::vector<std::string>& overrides);

// What to say to a user who types a key as a command-line flag, --learning_rate=1e-4 or
// --per_device_train_batch_size 8;
// "" when `name` (without dashes) is no key, neither here nor in another trainer.
std::string advice_for_flag(const std::string& name, const std::string& value);

// The whole configuration as commented YAML that load_config reads back to the same values.
void write_yaml(const Config& config, std::ostream& out);

// The value of a key ("training.batch_size") as YAML; of a section that is absent, "null".
std::string value_text(const Config& config, const std::string& key);

// The reference page (docs/config.md) and the JSON schema (configs/schema.json), generated from the
// declarations.
void write_reference_page(std::ostream& out);
void write_json_schema(std::ostream& out);

// What --help says of the keys: one line each, by section.
void write_key_summary(std::ostream& out);

}  // namespace trainer
