// One value: from a YAML node into the configuration, and back to text.
#pragma once

#include <optional>
#include <string>

#include <yaml-cpp/yaml.h>

#include "config/schema.h"

namespace trainer::config {

// What a key takes: "an integer", "one of no, steps, epoch", "text or a list of text".
std::string expected_value(const Key& key);

// "at least 1", "at least 0 and below 1"; "" without bounds.
std::string allowed_range(const Key& key);

// True for keys that may be null or empty: those that are by default.
bool may_be_empty(const Key& key);

// True for keys whose value is text or a list of text: on the command line it is taken as it stands.
bool takes_text(const Key& key);

// Sets the key in `config` to the node's value; a message when it cannot be that.
std::optional<std::string> assign(const Key& key, const YAML::Node& node, Config& config);

// Sets the key to its default.
void reset(const Key& key, Config& config);

// "'eight'", "a list", "nothing": for messages.
std::string describe(const YAML::Node& node);

// The key's value as YAML on one line.
std::string value_as_yaml(const Key& key, const Config& config);
std::string default_as_yaml(const Key& key);

// The same with those that go with the values of other keys: "5.0e-05 (0.001 with optimizer.name:
// adafactor)".
std::string all_defaults(const Key& key);

// Text as YAML, quoted where it must be.
std::string text_as_yaml(const std::string& text);

// A path with a leading ~ as the home directory.
std::string expand_home(const std::string& path);

// The shortest decimal that reads back to the same number, also for readers of YAML 1.1 (5.0e-05).
std::string number_as_yaml(double value);

}  // namespace trainer::config
