// LoRA as a pass over a model: adapters in the chosen linear layers, everything else frozen.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/formats/peft.h"
#include "trainer/models/load_model.h"
#include "trainer/models/model.h"

namespace trainer {

// Adds adapters as PEFT does: A is kaiming-uniform (from the seed and the layer's name), B is zero, both are
// fp32 (on an embedding A is zero and B normal). The modules in modules_to_save become trained fp32 copies.
// With config.adapter, the values (and r, alpha, targets) come from that directory, and the vocabulary gets
// as many rows as are stored there. `train_vocabulary`: the embedding and the head are also trained and saved
// (for added tokens). Returns the settings that are saved with the adapter. Throws ConfigError if a target
// matches nothing (the message lists what could be matched), if a target is not a linear layer or an
// embedding, or if a saved module is tied or missing.
AdapterConfig apply_lora(Model& model, const LoraConfig& config, uint64_t seed, at::Device device,
                         bool train_vocabulary = false);

// The trained tensors, under their names in an adapter file.
std::map<std::string, at::Tensor> adapter_tensors(Model& model);

// Returns how the base's weights were quantised while the adapter in this directory was trained; nullopt if
// they were not, or if another program trained it.
std::optional<Quantisation> quantisation_in_training(const std::filesystem::path& adapter);
// Returns what an adapter's file says of that (kTrainedOn).
std::string trained_on(const Quantisation& quantisation);

// Returns the head that is saved with the adapter and scores texts; nullopt if there is none. What the
// outputs mean, an adapter of another program does not say: then they are LABEL_0, LABEL_1, ..., and one is a
// reward.
std::optional<ScoreHeadSpec> score_head_of(const std::filesystem::path& adapter);
// Returns what an adapter's file says of it (kScoreHead). `max_length`: the longest text that it learned, in
// tokens.
std::string score_head_text(const ScoreHeadSpec& head, int64_t max_length);
// Returns that length; nullopt if the adapter's file does not say it.
std::optional<int64_t> longest_text_of(const std::filesystem::path& adapter);

// Loads `base` and puts the adapter on it, frozen.
std::unique_ptr<Model> load_with_adapter(const std::filesystem::path& base,
                                         const std::filesystem::path& adapter, const LoadOptions& options,
                                         LoadReport* report = nullptr);

// Loads a model directory, or an adapter directory (then the result is its base model with the adapter on it,
// frozen). A relative path to the base is also tried from the adapter's directory. The base of an adapter
// that was trained on quantised weights is quantised in the same way. `base`: the adapter's, in place of the
// one that it names; empty: that one.
std::unique_ptr<Model> load_model_or_adapter(const std::filesystem::path& directory,
                                             const LoadOptions& options, LoadReport* report = nullptr,
                                             const std::filesystem::path& base = {});

}  // namespace trainer
