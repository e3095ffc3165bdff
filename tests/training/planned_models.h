// Models whose memory is planned and measured: families, and the peak of a step of theirs.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trainer/models/load_model.h"
#include "trainer/training/plan.h"
#include "trainer/training/trainer.h"
#include "trainer/training/worst_batch.h"

#include "memory/offload.h"
#include "support/counting_allocator.h"
#include "support/temporary_directory.h"
#include "training/prepare_model.h"
#include "weights/weight_format.h"

namespace trainer {

using Json = nlohmann::json;

// The peak of building a model with random weights and making the plan's step for real.
inline int64_t measured_peak(const Config& config, const std::filesystem::path& path, at::ScalarType dtype) {
  const CountsAllocations counts;
  CountingAllocator& allocator = CountingAllocator::instance();
  allocator.reset_peak();
  const int64_t before = allocator.in_use();
  {
    const test::TemporaryDirectory below;
    set_offload_directory(below.path());
    const std::optional<Quantisation> quantise = quantisation_of(config);
    const std::unique_ptr<Model> model =
        model_on_meta(path, dtype, !config.lora, quantise, config.memory.offload.weights);
    model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
      const bool offloaded = parameter.value.offloaded() != nullptr;
      if (!parameter.value.is_tensor()) {
        const auto quantiser =
            weight_format(quantise->format).quantiser(name, parameter.shape, dtype, quantise->double_quant);
        quantiser->add(at::full(parameter.shape, 0.01));
        const std::shared_ptr<const WeightSource> values = quantiser->finish();
        std::vector<at::Tensor> parts = values->tensors();
        for (at::Tensor& part : parts)
          if (offloaded) part = offloaded_zeros(part.sizes(), part.options()).copy_(part);
        parameter.value = Weight(values->with_storage(parts));
        if (offloaded) parameter.value.set_offloaded();
        return;
      }
      const auto options = at::TensorOptions().dtype(dtype);
      const bool trained = parameter.trained();
      parameter.value =
          offloaded ? offloaded_zeros(parameter.shape, options) : at::empty(parameter.shape, options);
      parameter.value.tensor().fill_(0.01);
      if (offloaded) parameter.value.set_offloaded();
      parameter.value.set_requires_grad(trained);
    });
    prepare_for_training(*model, config, model->vocab_size(), at::kCPU);
    Trainer trainer(config, *model, at::kCPU, 1);
    const UpdateCheck check(*model);
    trainer.step(worst_batch(config, model->encoder_decoder()));
  }
  return allocator.peak() - before;
}

inline Json t5(Json changes) {
  Json config{{"model_type", "t5"},
              {"vocab_size", 2000},
              {"d_model", 256},
              {"d_kv", 32},
              {"d_ff", 512},
              {"num_layers", 3},
              {"num_decoder_layers", 3},
              {"num_heads", 8},
              {"feed_forward_proj", "gated-gelu"},
              {"tie_word_embeddings", false}};
  config.update(changes);
  return config;
}

inline Json decoder(Json changes) {
  Json config{{"model_type", "qwen2"},    {"vocab_size", 3000},     {"hidden_size", 256},
              {"intermediate_size", 640}, {"num_hidden_layers", 4}, {"num_attention_heads", 8},
              {"num_key_value_heads", 2}, {"hidden_act", "silu"},   {"max_position_embeddings", 512},
              {"rms_norm_eps", 1e-6},     {"rope_theta", 10000.0},  {"tie_word_embeddings", true}};
  config.update(changes);
  return config;
}

// Windows are narrower than samples.
inline Json t5gemma(const char* type) {
  const bool second = type == std::string("t5gemma2");
  Json stack = decoder({{"head_dim", 64}, {"sliding_window", 64}, {"num_hidden_layers", 2}});
  for (const char* key : {"model_type", "hidden_act", "tie_word_embeddings"}) stack.erase(key);
  const Json encoder = second ? Json{{"text_config", stack}, {"vision_config", Json::object()}} : stack;
  return {{"model_type", type}, {"encoder", encoder}, {"decoder", stack}};
}

inline Json gemma4(const Json& changes) {
  Json config = decoder(
      {{"model_type", "gemma4_text"},
       {"sliding_window", 64},
       {"head_dim", 32},
       {"global_head_dim", 64},
       {"attention_k_eq_v", true},
       {"num_global_key_value_heads", 1},
       {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
       {"hidden_size_per_layer_input", 0}});
  config.erase("rope_theta");
  config.update(changes);
  return config;
}

struct Family {
  std::string name;
  Json config;
};

inline std::vector<Family> families() {
  return {{"t5_v1_0", t5({{"feed_forward_proj", "relu"}, {"tie_word_embeddings", true}})},
          {"t5_v1_1", t5(Json::object())},
          {"mt5", t5({{"model_type", "mt5"}})},
          {"umt5", t5({{"model_type", "umt5"}})},
          {"byt5", t5({{"vocab_size", 384}, {"d_ff", 2048}, {"num_layers", 6}, {"num_decoder_layers", 2}})},
          {"llama", decoder({{"model_type", "llama"}, {"tie_word_embeddings", false}})},
          {"llama_wide_feed_forward", decoder({{"model_type", "llama"}, {"intermediate_size", 1024}})},
          {"mistral", decoder({{"model_type", "mistral"}, {"sliding_window", 64}})},
          {"qwen2", decoder(Json::object())},
          {"qwen3", decoder({{"model_type", "qwen3"}, {"head_dim", 64}})},
          {"qwen2_large_vocabulary", decoder({{"vocab_size", 40000}, {"num_hidden_layers", 1}})},
          {"t5_large_vocabulary", t5({{"vocab_size", 40000}, {"num_layers", 1}, {"num_decoder_layers", 1}})},
          {"smollm3", decoder({{"model_type", "smollm3"}, {"num_key_value_heads", 4}, {"pad_token_id", 0}})},
          {"gemma2", decoder({{"model_type", "gemma2"}, {"sliding_window", 64}, {"head_dim", 32}})},
          {"gemma3", decoder({{"model_type", "gemma3_text"}, {"sliding_window", 64}, {"head_dim", 64}})},
          {"gemma4", gemma4(Json::object())},
          {"gemma4_small", gemma4({{"attention_k_eq_v", false},
                                   {"hidden_size_per_layer_input", 32},
                                   {"vocab_size_per_layer_input", 3000},
                                   {"num_kv_shared_layers", 2}})},
          {"phi3", decoder({{"model_type", "phi3"}, {"pad_token_id", 0}, {"partial_rotary_factor", 0.75}})},
          {"qwen3_5", decoder({{"model_type", "qwen3_5_text"},
                               {"head_dim", 64},
                               {"full_attention_interval", 2},
                               {"linear_num_key_heads", 4},
                               {"linear_num_value_heads", 8},
                               {"linear_key_head_dim", 32},
                               {"linear_value_head_dim", 32}})},
          {"lfm2", decoder({{"model_type", "lfm2"}, {"full_attn_idxs", {1, 3}}})},
          {"granite", decoder({{"model_type", "granite"}, {"residual_multiplier", 0.22}})},
          {"granite_hybrid",
           decoder({{"model_type", "granitemoehybrid"},
                    {"num_local_experts", 0},
                    {"shared_intermediate_size", 256},
                    {"layers_block_type", {"attention", "attention", "attention", "attention"}}})},
          {"ministral3", decoder({{"model_type", "ministral3"},
                                  {"head_dim", 32},
                                  {"pad_token_id", 0},
                                  {"rope_scaling",
                                   {{"rope_type", "default"},
                                    {"llama_4_scaling_beta", 0.1},
                                    {"original_max_position_embeddings", 64}}}})},
          {"olmo3", decoder({{"model_type", "olmo3"}, {"pad_token_id", 0}, {"sliding_window", 64}})},
          {"glm4", decoder({{"model_type", "glm4"}, {"head_dim", 32}, {"pad_token_id", 0}})},
          {"t5gemma", t5gemma("t5gemma")},
          {"t5gemma2", t5gemma("t5gemma2")},
          {"gemma3_whole",
           {{"model_type", "gemma3"},
            {"text_config",
             decoder({{"model_type", "gemma3_text"}, {"sliding_window", 64}, {"head_dim", 64}})}}}};
}
}  // namespace trainer
