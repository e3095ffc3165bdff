// YAML file + extends + command-line overrides -> Config, and back to commented YAML.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/config/config.h"

namespace trainer {

// Reads `file` (nullopt: only defaults and overrides), follows `extends:`, and applies the overrides
// "section.key=value", or "key=value" when only one section has a key of that name. Relative paths in
// `extends` are relative to the file that contains them. Throws one ConfigError with all problems. Each has
// file:line:column (or the text of the override) and, for an unknown key, the closest known key, or the name
// that this program uses for a Hugging Face, LLaMA-Factory or axolotl key.
Config load_config(const std::optional<std::filesystem::path>& file,
                   const std::vector<std::string>& overrides);

// Checks everything that a training run needs and that can be checked without the model: required keys,
// contradictions between keys, missing files. Returns one message per problem; empty when there is none.
// load_config does not call it.
std::vector<std::string> check_for_training(const Config& config);

// The same problems, each with its key and exit code.
struct TrainingProblem {
  std::string key, text;  // the text names file, line and key, too
  ExitCode code;
};
std::vector<TrainingProblem> problems_for_training(const Config& config);

// A key that the user has given and that has no effect beside the values of others, such as
// evaluation.num_beams without evaluation.generate.
struct IdleKey {
  std::string key, text;    // the text names the places of all keys, too
  bool overridden = false;  // it stands in a file, and an override on the command line switches it off
};

// Returns these keys, in the order of the reference. What a file without data.train says of evaluations waits
// for data.eval and is not among them.
std::vector<IdleKey> keys_without_effect(const Config& config);

// load_config followed by check_for_training, with the problems of both in one ConfigError. `resolve_names`
// is called between the two if there are no problems yet; it may replace names of models and data by paths.
Config load_training_config(const std::optional<std::filesystem::path>& file,
                            const std::vector<std::string>& overrides,
                            const std::function<void(Config&)>& resolve_names = nullptr);

// Returns advice for a user who types a key as a command-line flag (--learning_rate=1e-4,
// --per_device_train_batch_size 8); "" when `name` (without dashes) is not a key, neither here nor in another
// trainer.
std::string advice_for_flag(const std::string& name, const std::string& value);

// Writes the whole configuration as commented YAML; load_config reads it back to the same values. Paths in
// the cache of the hub are written as names with their commit, "google/flan-t5-xl@7d63...".
void write_yaml(const Config& config, std::ostream& out);

// Returns the names of all keys ("training.batch_size"), in the order of the reference.
std::vector<std::string> key_names();
// Returns the keys whose values are not the defaults; with LoRA, lora.r is always among them.
std::vector<std::string> changed_keys(const Config& config);

// Returns the value of a key ("training.batch_size") as YAML; "null" for a section that is absent.
std::string value_text(const Config& config, const std::string& key);

// Write the reference page (docs/config.md) and the JSON schema (configs/schema.json), generated from the
// declarations of the keys.
void write_reference_page(std::ostream& out);
void write_json_schema(std::ostream& out);

// Writes the keys for --help: one line each, by section.
void write_key_summary(std::ostream& out);

}  // namespace trainer
