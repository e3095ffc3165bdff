// Random weights of a model that is trained from the beginning, with the distributions of Transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

namespace trainer {

// Writes to `to` (which must exist) the model that config.json in `from` describes, with random weights in
// fp32, and the other files of `from`. The weights are a function of the seed and of their names. Throws
// FormatError for a model_type whose distributions are not known here, and as write_model_weights() does.
//
// T5, mT5, UMT5: normal, with the deviations of T5PreTrainedModel._init_weights (Raffel et al. leave out the
// scale of attention, and put it here). Decoders: normal with initializer_range; biases 0, norms 1.
void write_random_model(const std::filesystem::path& from, const std::filesystem::path& to, uint64_t seed);

// Returns the first values of a head that scores texts, fp32, as Transformers draws them.
at::Tensor initial_score_head(const std::string& name, const std::vector<int64_t>& shape,
                              const nlohmann::json& config, uint64_t seed);

}  // namespace trainer
