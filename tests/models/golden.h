// Loads one golden of tests/goldens/models as a run would.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/adapters/lora.h"
#include "trainer/data/batching.h"
#include "trainer/formats/safetensors.h"
#include "trainer/models/load_model.h"

#include "models/tensor_views.h"
#include "support/golden_directory.h"

namespace trainer {

struct Golden {
  // `subfolder`: of the model, if it is kept in several forms. `rank` and `ranks`: as in LoadOptions.
  explicit Golden(const std::string& name, at::ScalarType dtype = at::kFloat,
                  const std::optional<Quantisation>& quantise = std::nullopt,
                  const std::string& subfolder = "model", int64_t rank = 0, int64_t ranks = 1)
      : directory(golden_directory(name)) {
    const bool lora = std::filesystem::exists(directory / "adapter");
    LoadOptions options{at::kCPU, dtype, !lora, quantise};
    options.rank = rank;
    options.ranks = ranks;
    model = load_model(directory / subfolder, options);
    if (lora) {
      LoraConfig config;
      config.adapter = directory / "adapter";
      apply_lora(*model, config, 0, at::kCPU);
    }
    const nlohmann::json samples = json("batch.json");
    for (size_t i = 0; i < samples["input_ids"].size(); i++) {
      batch.samples.push_back({samples["input_ids"][i].get<std::vector<int32_t>>(),
                               samples["labels"][i].get<std::vector<int32_t>>()});
      batch.supervised_tokens += supervised_tokens(batch.samples.back(), model->encoder_decoder());
    }
    file = read_safetensors(directory / "expected.safetensors");
  }

  nlohmann::json json(const std::string& name) const {
    std::ifstream in(directory / name);
    return nlohmann::json::parse(in);
  }
  at::Tensor expected(const std::string& name) const {
    EXPECT_TRUE(file.tensors.contains(name)) << name;
    return mapped_tensor(file.tensors.at(name), file.mapping).clone();
  }
  // Slots of all samples, as one micro-batch.
  MicroBatch whole() const {
    std::vector<int64_t> slots(batch.samples.size());
    for (size_t i = 0; i < slots.size(); i++) slots[i] = static_cast<int64_t>(i);
    return micro_batch(slots);
  }
  MicroBatch micro_batch(const std::vector<int64_t>& slots) const {
    CollateOptions options = model->collate_options();
    options.packing = packing;
    options.random_key = random_key;
    options.few_forms = few_forms;
    return collate(batch, slots, options, at::kCPU);
  }
  // Gradients of sum(loss) / supervised tokens by name, over the given cut.
  std::map<std::string, at::Tensor> gradients(const std::vector<std::vector<int64_t>>& cuts,
                                              const ForwardContext& context, double* loss = nullptr,
                                              const LossOptions& options = {}) const {
    model->for_each_parameter([](const std::string&, Parameter& p) {
      if (p.trained()) p.value.tensor().mutable_grad().reset();
    });
    double sum = 0;
    const double n = static_cast<double>(batch.supervised_tokens);
    for (const auto& slots : cuts) {
      const LossSum out = model->loss(micro_batch(slots), context, options);
      sum += out.loss.item<double>();
      out.loss.backward(at::full({}, 1.0 / n));
    }
    if (loss != nullptr) *loss = sum / n;
    std::map<std::string, at::Tensor> gradients;
    model->for_each_parameter([&](const std::string& name, Parameter& p) {
      if (!p.trained()) return;
      const at::Tensor& leaf = p.value.tensor();
      gradients[name] = leaf.grad().defined() ? leaf.grad().clone() : at::zeros_like(leaf);
    });
    return gradients;
  }
  std::vector<std::vector<int64_t>> one_cut() const {
    std::vector<int64_t> slots(batch.samples.size());
    for (size_t i = 0; i < slots.size(); i++) slots[i] = static_cast<int64_t>(i);
    return {slots};
  }

  bool packing = false, few_forms = false;  // how micro-batches are laid out
  // Of dropout. In Gemma 4's small form, a third of the keys saturate an attention, with this program's first
  // masks as with others: then gradients that differ in the order of sums only differ by 1e-5 to 3e-5.
  uint64_t random_key = 8;
  std::filesystem::path directory;
  std::unique_ptr<Model> model;
  EffectiveBatch batch;
  SafetensorsFile file;
};

// |a - b| / |b|, in double.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names{"t5_v1_0",
                                              "t5_v1_0_lora",
                                              "t5_v1_1",
                                              "t5_v1_1_lora",
                                              "t5_v1_1_lora_all",
                                              "umt5",
                                              "umt5_lora",
                                              "t5gemma",
                                              "t5gemma_lora",
                                              "t5gemma2",
                                              "t5gemma2_lora",
                                              "qwen2",
                                              "qwen2_lora",
                                              "qwen2_yarn",
                                              "qwen3",
                                              "qwen3_lora",
                                              "qwen3_dynamic",
                                              "llama",
                                              "llama_lora",
                                              "llama_lora_head",
                                              "llama_31",
                                              "mistral",
                                              "llama_patterns",
                                              "qwen2_dora",
                                              "llama_dora_vocabulary",
                                              "t5_v1_1_vocabulary",
                                              "qwen3_saved",
                                              "gemma2",
                                              "gemma2_lora",
                                              "gemma3",
                                              "gemma3_lora",
                                              "gemma4",
                                              "gemma4_lora",
                                              "gemma4_small_lora",
                                              "phi3",
                                              "phi3_lora",
                                              "phi3_dora",
                                              "phi3_window",
                                              "qwen3_5",
                                              "qwen3_5_lora",
                                              "granite",
                                              "granite_lora",
                                              "granite_hybrid",
                                              "granite_hybrid_lora",
                                              "ministral3",
                                              "olmo2",
                                              "olmo3",
                                              "olmo3_lora",
                                              "glm4",
                                              "glm4_lora",
                                              "lfm2",
                                              "lfm2_lora",
                                              "gemma3_whole",
                                              "gemma3_whole_lora",
                                              "qwen3_5_whole"};
  return names;
}

}  // namespace trainer
