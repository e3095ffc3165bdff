// The value of memory.offload: from YAML, and back to it.
#pragma once

#include <optional>
#include <string>

#include <yaml-cpp/yaml.h>

#include "trainer/config/config.h"

namespace trainer::config {

inline constexpr const char* kExpectedOffload = "auto, or a list of optimizer, weights and activations";

// Sets `target` to the node's value; a message when it cannot be that.
std::optional<std::string> assign_offload(const YAML::Node& node, Offload& target);

std::string offload_as_yaml(const Offload& value);

}  // namespace trainer::config
