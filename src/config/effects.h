// Keys that only some values of other keys make use of: where a key has no effect, and what is said of it
// then.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "trainer/config/config.h"

#include "config/layer.h"
#include "config/schema.h"

namespace trainer::config {

// The first line of a file that write_yaml() wrote begins so.
inline constexpr const char* kDumpBegins = "# Configuration of trainer ";

// Returns whether the key, or the section lora, or the model's family has this value, written as in a
// configuration.
bool has_value(const Config& config, const std::string& key, const std::string& value);

// "with optimizer.name: adafactor": where the key has no effect.
std::string in_words(const Condition& condition);
// "with lora", "for T5": where the key has another default.
std::string in_words(const DependentDefault& other);

// Returns whether the state is that of this configuration.
bool holds(const State& state, const Config& config);

// Returns the first condition under which the key has no effect in `config`, of one kind or of all kinds;
// nullptr: it has one.
const Condition* first_idle(const Key& key, const Config& config, std::optional<Idle> kind = std::nullopt);

// Returns whether the key stands in a file, and an override on the command line is what the condition is
// about: the user knows better now, and the file stays as it is.
bool is_overridden(const Key& key, const Condition& condition, const Config& config);

// Returns the keys that contradict others: the user has given both, the other one in the same layer or in an
// earlier one. `layers`: key -> the number of the layer that set it last.
Problems contradicting_keys(const Config& config, const std::map<std::string, size_t>& layers);

}  // namespace trainer::config
