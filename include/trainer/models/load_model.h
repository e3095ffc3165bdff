// Loads a model directory. Each tensor is read once, in the wanted type, directly into its final memory.
// Frozen weights on the CPU stay mapped.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"
#include "trainer/models/model.h"
#include "trainer/models/score_head.h"

namespace trainer {

struct WeightFormatName;  // config/weight_formats.h

// Quantises the weights of linear layers while they are loaded; not the head.
struct Quantisation {
  bool double_quant = true;                  // also their scales, if the format can
  std::vector<std::string> keep_dense = {};  // ends of the names of modules that stay as they are
  std::string format = {};                   // a value of model.quantize; empty: the one with the fewest bits
};

struct LoadOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // Undefined: each weight as it is stored; computation in fp32
  // All parameters will be trained: they are never mapped, and requires_grad is set.
  bool train_all = false;
  // Weights that are stored in a format of their own stay so without it.
  std::optional<Quantisation> quantise = std::nullopt;
  bool offload_weights = false;  // those of blocks (weights/block_store.h) lie outside of the device's memory
  // With several ranks, only this one's shard of the weights of blocks is loaded (weights/block_store.h).
  int64_t rank = 0, ranks = 1;
  // The model gets this head in place of its own, with new values if the files have none for these labels.
  std::optional<ScoreHeadSpec> head = std::nullopt;
};

struct LoadReport {
  int64_t bytes = 0, mapped_bytes = 0, converted_bytes = 0;
  int64_t quantised = 0, quantised_bytes = 0;  // weights in a format, and what they take in memory
  const WeightFormatName* format = nullptr;    // null: they are all plain tensors
  double seconds = 0;
  std::vector<std::string> ignored;     // stored tensors that the model does not need
  bool new_head = false;                // the values of a head that scores texts are new
  std::map<std::string, Dtype> stored;  // the types in the files of the parameters that are plain tensors
  std::string line() const;             // a line for the log
  std::string details() const;          // another, with --verbose
};

// Returns the model with its weights; fills in `report` if given. Throws FormatError if the directory is
// missing, if the model_type is unknown, or if the weights do not fit: then one error lists all missing,
// unexpected and misshapen tensors, with the expected and the found shape.
std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const LoadOptions& options,
                                  LoadReport* report = nullptr);

// Returns the same model on `meta`: shapes without values, for a memory plan. `path` is a model directory, of
// which only config.json is needed, or a file like config.json (configs/models). Without weights, config.json
// decides whether the head is separate (tie_word_embeddings), and quantization_config which weights are
// quantised. `ranks`: the weights of blocks are sharded among so many, and this is rank 0.
std::unique_ptr<Model> model_on_meta(const std::filesystem::path& path, at::ScalarType dtype, bool train_all,
                                     const std::optional<Quantisation>& quantise = std::nullopt,
                                     bool offload_weights = false, int64_t ranks = 1,
                                     const std::optional<ScoreHeadSpec>& head = std::nullopt);

// Returns the dtype for "auto" on this device: bf16 if the processor or GPU computes in it, otherwise fp32.
at::ScalarType automatic_dtype(at::Device device);

}  // namespace trainer
