// What becomes of another trainer's configuration: our keys with their values, and what there is to say.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "config/import_config.h"

namespace trainer::config {

// The keys of the other file, or of a mapping in it. Each is taken once; what is left at the end was not
// understood.
class GivenKeys {
 public:
  // `place`: what stands before the names of a mapping inside of the file: "datasets".
  explicit GivenKeys(const YAML::Node& mapping, std::string place = "");

  // "datasets.path"
  std::string full_name(const std::string& name) const;

  // Return the value and take the key; nothing if it is absent or empty (null, "", [], {}).
  std::optional<YAML::Node> take(const std::string& name);
  // The same for a value that holds no mapping. One that does stays, so that its names are not lost.
  std::optional<std::string> take_text(const std::string& name);
  std::optional<double> take_number(const std::string& name);
  // Absent counts as false. Texts are true, but for "false", "no" and "off".
  bool take_flag(const std::string& name);
  void drop(const std::vector<std::string>& names);
  // The mapping that the key has; nothing if it is absent. Another value stays.
  std::optional<GivenKeys> take_part(const std::string& name);
  // Without taking it; nothing if it is absent or empty.
  std::optional<YAML::Node> peek(const std::string& name) const;
  bool has(const std::string& name) const { return peek(name).has_value(); }
  // Whether it had a value, also if that is taken. Absent, null and empty keys have their default there.
  bool was_given(const std::string& name) const { return given_.contains(name); }
  // Whether it was there without a value, as an empty line or null. To some keys that says "off".
  bool was_null(const std::string& name) const { return nulls_.contains(name); }
  bool was_true(const std::string& name) const;
  std::optional<std::string> given_text(const std::string& name) const;  // of one scalar
  std::optional<double> given_number(const std::string& name) const;

  // What nobody took, in the order of the file.
  std::vector<std::pair<std::string, YAML::Node>> rest() const;
  // Names whose value was no number where one was asked for.
  const std::vector<std::string>& no_numbers() const { return no_numbers_; }

 private:
  std::string place_;
  // A list, because assigning a YAML::Node changes the document.
  std::list<std::pair<std::string, YAML::Node>> entries_;
  std::map<std::string, YAML::Node> given_;
  std::set<std::string> nulls_;
  std::vector<std::string> no_numbers_;
};

class ImportedSettings {
 public:
  // `key`: ours, with its section. `from`: theirs, for the comment; "" if it comes from their default.
  void set(const std::string& key, const std::string& yaml, const std::string& from);
  void set_text(const std::string& key, const std::string& text, const std::string& from);
  void set_list(const std::string& key, const std::vector<std::string>& items, const std::string& from);
  bool has(const std::string& key) const { return !value_of(key).empty(); }
  std::string value_of(const std::string& key) const;  // as YAML; "" if it is not set
  // What the other program does without the key. Written out if nothing else sets `key`, and ours would do
  // otherwise.
  void their_default(const std::string& key, const std::string& yaml,
                     const std::string& from = "their default");
  // The section `lora:` turns LoRA on, also without keys.
  void turn_lora_on() { lora_ = true; }
  bool lora() const { return lora_; }

  void change(const std::string& name, const std::string& meaning);
  void leave_out(const std::string& name, const std::string& reason);

  // Takes back what load_config() refuses, and returns the result. `opening`: the comment at the top.
  ImportedConfig finish(const std::string& from, const std::string& opening);

 private:
  struct Setting {
    Setting(const std::string& key, std::string value, std::string comment);
    std::string key() const;

    std::string section, name, yaml, from;
  };
  std::string yaml(const std::string& opening, std::vector<const Setting*>& by_line) const;
  std::string accepted_yaml(const std::string& opening);
  std::vector<Setting> different(const std::vector<Setting>& wanted);
  void write_out_defaults();

  std::vector<Setting> settings_, defaults_;
  bool lora_ = false;
  std::vector<std::string> changes_, left_out_;
};

// "4", "3.0e-4", "true", "[a, b]"
std::string node_as_yaml(const YAML::Node& node);
std::vector<std::string> texts_of(const YAML::Node& node);  // of a list, or of one scalar with commas
bool is_true(const YAML::Node& node);
bool is_empty(const YAML::Node& node);  // absent, null, "", "None", [] or {}
// Whether there is a mapping in it.
bool has_names_inside(const YAML::Node& node);
// "fsdp_config: {min_num_params, xla}": the name of a key with those inside of its value, but for those that
// say nothing. "" if all of them say nothing.
std::string with_names_inside(const std::string& name, const YAML::Node& value);
// Whether it is what Hugging Face writes where nothing was chosen. `name` with its place: "fsdp_config.xla".
bool says_nothing(const std::string& name, const YAML::Node& value);

// Takes everything that is left by the table of foreign keys.
void import_by_table(GivenKeys& keys, ImportedSettings& settings);
// Takes the entries of a part ("optimizer") that the table has as "optimizer.lr" and the like, and leaves out
// all others.
void import_part(GivenKeys& part, ImportedSettings& settings);
// Leaves out the keys of LoRA, with a word for each, or without one if `reason` is "".
void drop_lora(GivenKeys& keys, const std::string& reason, ImportedSettings& settings);
// The samples of an update: micro-batch times accumulation. `micro` is their name of the micro-batch,
// `update` of the samples themselves, where they have one: it counts without a number of accumulations.
void import_batch(GivenKeys& keys, ImportedSettings& settings, const std::string& micro, int64_t fallback,
                  const std::string& update = "");

void import_optimizer(const std::string& name, const std::string& from, ImportedSettings& settings);

// A service that gets the metrics; of one that is not ours, the reason is noted.
void import_service(const std::string& service, const std::string& from, ImportedSettings& settings);

// How the value of a key is taken, for the table: each takes `name` and sets `ours`.
namespace to {
using Name = const std::string&;
using Converter = void(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings);
Converter flag, list, count, packed, metric, held_out, recompute, resume, grouped_by_length;
Converter half, dtype, four_bits, quantized_as, double_quantized;
Converter optimizer, schedule, warmup, warmup_share, strategy, per_epoch;
Converter services, wandb, mlflow;
Converter unsaid;  // takes a key of which nothing has to be said
}  // namespace to

// Each takes the keys that it knows and that need more than a new name.
void import_axolotl(GivenKeys& keys, ImportedSettings& settings);
void import_llama_factory(GivenKeys& keys, ImportedSettings& settings);
void import_torchtune(GivenKeys& keys, ImportedSettings& settings);
// Set objective.name and data.kind, if the file is about preferences. Two return whether it is.
bool import_preferences_of_llama_factory(const std::string& stage, GivenKeys& keys,
                                         ImportedSettings& settings);
void import_preferences_of_axolotl(GivenKeys& keys, ImportedSettings& settings);
bool import_preferences_of_trl(GivenKeys& keys, ImportedSettings& settings);

// What these programs do without a key. To be called when all keys have been taken.
void add_defaults_of_hugging_face(const GivenKeys& keys, ImportedSettings& settings);
void add_defaults_of_trl(const GivenKeys& keys, ImportedSettings& settings);
void add_defaults_of_axolotl(const GivenKeys& keys, ImportedSettings& settings);
void add_defaults_of_llama_factory(const GivenKeys& keys, ImportedSettings& settings);
void add_defaults_of_torchtune(const GivenKeys& keys, ImportedSettings& settings);

}  // namespace trainer::config
