// Every configuration key, described once. Loading, checking, the dumped YAML, the JSON schema, the reference
// page and
// --help are all made from this table.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// What a changed value means when a run is resumed: every key of the schema has one of these marks.

enum class OnResume {
  may_change,            // the result is the same up to rounding, or only saved files and output change
  is_logged,             // the result changes, as the user intends: the change is logged
  fixes_run,             // refused, unless resume_changed names the key
  fixes_run_by_content,  // like fixes_run, but compares the meaning: file content, a computed number
};

// Returns full names ("training.dropout") in the order of the schema.
std::vector<std::string> keys_marked(OnResume mark);
std::vector<std::string> keys_of_section(const std::string& section);

// Returns the mark of a key. Throws ConfigError when the key does not exist.
OnResume on_resume(const std::string& key);

}  // namespace trainer

namespace trainer::config {

// An enumeration, as an index into Key::choices.
struct Choice {
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};

using TextOrList = std::variant<std::string, std::vector<std::string>>;

// A mapping of names to numbers that keeps its order.
template <class Number>
using NumberMap = std::vector<std::pair<std::string, Number>>;

// The place of a key's value inside one Config.
using Field =
    std::variant<bool*, int64_t*, std::optional<int64_t>*, double*, std::optional<double>*, std::string*,
                 std::vector<std::string>*, TextOrList*, std::vector<int64_t>*, CountOrAuto*, CountOrAll*,
                 Recompute*, BoolOrAuto*, Offload*, NumberMap<int64_t>*, NumberMap<double>*,
                 std::pair<double, double>*, std::vector<DataSource>*, EvalData*, Choice>;

// Another key with one of these values, as in the configuration, or with any other value. The key may also be
// `lora` (null: there is none) or `model`, whose value is its family (model_family()).
struct State {
  std::string key;
  std::vector<std::string> values;
  bool among = true;
  bool if_given = false;      // its default says nothing: an option or a launcher may decide instead
  bool unless_given = false;  // that it is not given is the state
};

// What follows if a key is given where it has no effect.
enum class Idle {
  is_refused,   // an error; if an override took the effect of a key in a file, it is named
  contradicts,  // an error if the other key was given before it or beside it; else it is named
  is_named,     // a warning
};

// The key has no effect where all of the states hold.
struct Condition {
  std::vector<State> states;
  Idle idle = Idle::is_named;
  bool in_help = false;  // the help of the key, or of its section, says so
};

// Another default for the case that all of the states hold, or without states, for a configuration that is
// loaded. Of several that apply the last one counts.
struct DependentDefault {
  std::vector<State> states;
  std::string yaml;
};

struct Key {
  std::string section;  // "" at the top level
  std::string name;
  OnResume on_resume = OnResume::fixes_run;
  std::string help;  // the first sentence also stands in --help
  // The value in `config`; of an optional section, it is created.
  std::function<Field(Config& config)> field;

  std::vector<std::string> choices;  // empty: any
  std::vector<std::string> usual;    // values to offer where others may be given, too
  std::string default_word;  // the one of them that asks for the default, which follows from other keys
  std::optional<double> minimum, maximum;
  bool above_minimum = false, below_maximum = false;  // the bound itself is not allowed
  std::string unit;
  bool is_path = false;  // a leading ~ is the home directory
  std::string pattern, pattern_in_words;
  std::map<std::string, std::string> refused;  // a value that users try, and why it is none
  std::vector<Condition> conditions;
  std::vector<DependentDefault> dependent_defaults;

  std::string full_name() const { return section.empty() ? name : section + "." + name; }

  Key at_least(double bound) && {
    minimum = bound;
    return std::move(*this);
  }
  Key above(double bound) && {
    minimum = bound;
    above_minimum = true;
    return std::move(*this);
  }
  Key at_most(double bound) && {
    maximum = bound;
    return std::move(*this);
  }
  Key below(double bound) && {
    maximum = bound;
    below_maximum = true;
    return std::move(*this);
  }
  Key in(std::string name_of_unit) && {
    unit = std::move(name_of_unit);
    return std::move(*this);
  }
  Key path() && {
    is_path = true;
    return std::move(*this);
  }
  Key refuses(const std::string& value, const std::string& reason) && {
    refused[value] = reason;
    return std::move(*this);
  }
  Key default_called(std::string word) && {
    choices.push_back(word);
    default_word = std::move(word);
    return std::move(*this);
  }
  // A word for the default of a key that has no list of choices.
  Key default_written(std::string word) && {
    default_word = std::move(word);
    return std::move(*this);
  }
  Key one_of(std::vector<std::string> names) && {
    choices = std::move(names);
    return std::move(*this);
  }
  Key such_as(std::vector<std::string> values) && {
    usual = std::move(values);
    return std::move(*this);
  }
  // Refused unless, or if, another key has this value; named if an override gives the other its value.
  Key only_with(std::string other, std::string value) && {
    return std::move(*this).idle(
        {.states = {{.key = std::move(other), .values = {std::move(value)}, .among = false}},
         .idle = Idle::is_refused});
  }
  Key not_with(std::string other, std::string value) && {
    return std::move(*this).idle(
        {.states = {{.key = std::move(other), .values = {std::move(value)}}}, .idle = Idle::is_refused});
  }
  // No effect, as the help says.
  Key idle_with(std::string other, std::vector<std::string> values) && {
    return std::move(*this).idle(
        {.states = {{.key = std::move(other), .values = std::move(values)}}, .in_help = true});
  }
  Key idle_without(std::string other, std::string value) && {
    return std::move(*this).idle(
        {.states = {{.key = std::move(other), .values = {std::move(value)}, .among = false}},
         .in_help = true});
  }
  // The other value that the key needs, as the help says.
  Key contradicts(std::string other, std::string needed) && {
    return std::move(*this).idle(
        {.states = {{.key = std::move(other), .values = {std::move(needed)}, .among = false}},
         .idle = Idle::contradicts,
         .in_help = true});
  }
  Key idle(Condition condition) && {
    conditions.push_back(std::move(condition));
    return std::move(*this);
  }
  Key default_with(std::string other, std::string value, std::string yaml) && {
    return std::move(*this).default_where({{.key = std::move(other), .values = {std::move(value)}}},
                                          std::move(yaml));
  }
  Key default_where(std::vector<State> states, std::string yaml) && {
    dependent_defaults.push_back({std::move(states), std::move(yaml)});
    return std::move(*this);
  }
  Key matching(std::string regex, std::string in_words) && {
    pattern = std::move(regex);
    pattern_in_words = std::move(in_words);
    return std::move(*this);
  }
};

struct Section {
  std::string name;  // "" for the top level
  std::string help;
  bool optional = false;  // absent unless it, or a key of it, is given
  std::vector<Key> keys;
};

// In the order of the reference page; the top level comes last.
const std::vector<Section>& schema();

const Section* find_section(const std::string& name);
const Key* find_key(const std::string& section, const std::string& name);
const Key* find_key(const std::string& full_name);

// All keys with this name, whatever their section.
std::vector<const Key*> keys_named(const std::string& name);

// Returns the key that `name` means without its section, as on the command line; nullptr if several sections
// have one, or the name alone is unclear.
const Key* key_by_short_name(const std::string& name);

// Keys of which a run has one or the other. Setting one in a later file or override takes back the other.
const std::vector<std::pair<std::string, std::string>>& alternatives();

}  // namespace trainer::config
