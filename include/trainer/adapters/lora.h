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

// Adds adapters as PEFT does: A kaiming-uniform (from the seed and the layer's name), B zero, both fp32 (on
// an embedding A zero, B normal); the modules of modules_to_save become trained fp32 copies. With
// config.adapter the values (and r, alpha, targets) come from that directory, with as many rows for the
// vocabulary as are stored there. `train_vocabulary`: the embedding and the head are trained and saved, too
// (added tokens). Throws ConfigError: a target that matches nothing (with what could be matched), a target
// that is no linear layer, a saved module that is tied or not there. Returns the settings as they are saved
// with the adapter.
AdapterConfig apply_lora(Model& model, const LoraConfig& config, uint64_t seed, at::Device device,
                         bool train_vocabulary = false);

// The trained tensors under the names of an adapter file.
std::map<std::string, at::Tensor> adapter_tensors(Model& model);

// A model from a model directory or an adapter directory (then: its base with the adapter on it; frozen). A
// base path that is relative is tried from the adapter's directory, too.
std::unique_ptr<Model> load_model_or_adapter(const std::filesystem::path& directory,
                                             const LoadOptions& options, LoadReport* report = nullptr);

}  // namespace trainer
