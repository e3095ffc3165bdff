// The family of a model, on which some defaults depend. Only config.json is read.
#pragma once

#include <string>

namespace trainer::config {

inline constexpr const char *kT5 = "T5", *kDecoders = "decoders";

// Returns kT5 for encoder-decoders, kDecoders for others; "" if there is no config.json that tells: a path
// that is wrong is named elsewhere. `path`: as in model.path; of a name on the hub, only the cache is looked
// at.
std::string model_family(const std::string& path);

}  // namespace trainer::config
