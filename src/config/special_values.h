// The value of memory.offload: from YAML, and back to it.
#pragma once

#include <optional>
#include <string>

#include <yaml-cpp/yaml.h>

#include "trainer/config/config.h"

#include "config/schema.h"

namespace trainer::config {

inline constexpr const char* kExpectedOffload = "auto, or a list of optimizer, weights and activations";

// Sets `target` to the node's value; a message when it cannot be that.
std::optional<std::string> assign_offload(const YAML::Node& node, Offload& target);

std::string offload_as_yaml(const Offload& value);

// Sets of rows as a configuration writes them: a path, a list of paths, or of {path: ..., weight: ...}.

// As assign() in config/value.h: a message when the node cannot be that.
std::optional<std::string> assign_sources(const YAML::Node& node, std::vector<DataSource>& target);
// The same without weights, or a number: the share of the training data that is held out.
std::optional<std::string> assign_eval_data(const YAML::Node& node, EvalData& target);

std::string sources_as_yaml(const std::vector<DataSource>& sources);
std::string eval_data_as_yaml(const EvalData& eval);

}  // namespace trainer::config
