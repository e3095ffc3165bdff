#include "models/config_keys.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/warn_once.h"
#include "formats/generation_keys.h"
#include "formats/two_stacks.h"

namespace trainer {
namespace {

using Names = std::vector<std::string_view>;

// Read for every model.
const Names kEvery{"architectures", "dtype",        "eos_token_id",        "is_encoder_decoder",
                   "model_type",    "pad_token_id", "quantization_config", "tie_word_embeddings",
                   "torch_dtype",   "vocab_size",   "whole_model_type"};

const Names kT5{"d_ff",
                "d_kv",
                "d_model",
                "decoder_start_token_id",
                "dense_act_fn",
                "dropout_rate",
                "feed_forward_proj",
                "is_gated_act",
                "layer_norm_epsilon",
                "num_decoder_layers",
                "num_heads",
                "num_layers",
                "relative_attention_max_distance",
                "relative_attention_num_buckets",
                "scale_decoder_outputs"};

// Of models whose stacks have settings of their own (formats/two_stacks.h).
const Names kTwoStacks{"attention_dropout", "bos_token_id", "decoder",
                       "dropout_rate",      "encoder",      "eoi_token_index"};

const Names kDecoder{"attention_dropout",
                     "head_dim",
                     "hidden_act",
                     "hidden_size",
                     "intermediate_size",
                     "is_causal",
                     "layer_types",
                     "max_position_embeddings",
                     "num_attention_heads",
                     "num_hidden_layers",
                     "num_key_value_heads",
                     "original_max_position_embeddings",
                     "partial_rotary_factor",
                     "rms_norm_eps",
                     "rope_parameters",
                     "rope_scaling",
                     "rope_theta",
                     "sliding_window",
                     "use_bidirectional_attention"};

// And those of a stack of an encoder-decoder.
Names of_stack(Names names) {
  names.insert(names.end(), {"bos_token_id", "cross_attention_hidden_size", "dropout_rate"});
  return names;
}

// Read for one family besides.
const std::map<std::string_view, Names>& of_family() {
  static const Names gemma{"attention_bias", "attn_logit_softcapping", "final_logit_softcapping",
                           "hidden_activation", "query_pre_attn_scalar"};
  static const Names gemma3{"attention_bias",          "attn_logit_softcapping", "final_logit_softcapping",
                            "hidden_activation",       "query_pre_attn_scalar",  "rope_local_base_freq",
                            "_sliding_window_pattern", "sliding_window_pattern"};
  static const Names gemma4{"attention_bias",
                            "attention_k_eq_v",
                            "enable_moe_block",
                            "final_logit_softcapping",
                            "global_head_dim",
                            "hidden_activation",
                            "hidden_size_per_layer_input",
                            "num_global_key_value_heads",
                            "num_kv_shared_layers",
                            "per_layer_config",
                            "use_double_wide_mlp",
                            "vocab_size_per_layer_input"};
  static const std::map<std::string_view, Names> names{
      {"cwm", {"mlp_bias"}},
      {"ernie4_5", {"use_bias"}},
      {"gemma", {"attention_bias", "hidden_activation"}},
      {"gemma2", gemma},
      {"gemma3_text", gemma3},
      {"gemma4_text", gemma4},
      {"gemma4_unified_text", gemma4},
      {"glm", {"attention_bias"}},
      {"glm4", {"attention_bias"}},
      {"granite",
       {"attention_bias", "attention_multiplier", "embedding_multiplier", "logits_scaling", "mlp_bias",
        "residual_multiplier"}},
      {"granitemoehybrid",
       {"attention_bias", "attention_multiplier", "embedding_multiplier", "layers_block_type",
        "logits_scaling", "num_local_experts", "position_embedding_type", "residual_multiplier",
        "shared_intermediate_size"}},
      {"helium", {"attention_bias", "mlp_bias"}},
      {"internlm3", {"attention_bias", "bias", "mlp_bias", "qkv_bias"}},
      {"iquestcoder", {"attention_bias", "mlp_bias"}},
      {"lfm2",
       {"block_auto_adjust_ff_dim", "block_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of",
        "conv_L_cache", "conv_bias", "full_attn_idxs", "norm_eps", "tie_embedding",
        // Transformers reads none of these.
        "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
        "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads"}},
      {"llama", {"attention_bias", "mlp_bias"}},
      {"ministral", {}},
      {"ministral3", {}},
      {"mistral", {}},
      {"olmo2", {"attention_bias"}},
      {"olmo3", {"attention_bias"}},
      {"phi3", {"embd_pdrop", "resid_pdrop"}},
      {"qwen2", {"max_window_layers", "use_sliding_window"}},
      {"qwen2_vl_text", {"max_window_layers", "use_sliding_window"}},
      {"qwen2_5_vl_text", {"max_window_layers", "use_sliding_window"}},
      {"qwen3", {"attention_bias", "max_window_layers", "use_sliding_window"}},
      {"qwen3_5_text",
       {"attention_bias", "full_attention_interval", "linear_conv_kernel_dim", "linear_key_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim",
        // Transformers does not read these: the gate and the type of the states are as its code has them, and
        // the head of further tokens is left out.
        "attn_output_gate", "mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
        "output_gate_type"}},
      {"qwen3_vl_text", {"attention_bias"}},
      {"t5_gemma_module", of_stack(gemma)},
      {"t5gemma2_decoder", of_stack(gemma3)},
      {"t5gemma2_text", of_stack(gemma3)},
      {"smollm3",
       {"attention_bias", "max_window_layers", "mlp_bias", "no_rope_layer_interval", "no_rope_layers",
        "use_sliding_window"}}};
  return names;
}

// Notes of the program that wrote the file, and how Python finds its classes.
const Names kRecords{"_attn_implementation",
                     "_attn_implementation_autoset",
                     "_attn_implementation_internal",
                     "_commit_hash",
                     "_experts_implementation_internal",
                     "_name_or_path",
                     "attn_implementation",
                     "auto_map",
                     "experts_implementation",
                     "finetuning_task",
                     "is_llama_config",
                     "name_or_path",
                     "tokenizer_class",
                     "tokenizer_model",
                     "transformers.js_config",
                     "transformers_version",
                     "trust_remote_code",
                     "unsloth_fixed",
                     "unsloth_version"};
// The initial weights of a model that is trained from nothing.
const Names kInitial{"initializer_factor", "initializer_range"};
// What a model returns, and how it is run; slices of pretraining_tp only round differently.
const Names kRunning{"chunk_size_feed_forward",
                     "gradient_checkpointing",
                     "is_decoder",
                     "output_past",
                     "pretraining_tp",
                     "return_dict",
                     "tf_legacy_loss",
                     "tie_last_hidden_states",
                     "torchscript",
                     "use_bfloat16",
                     "use_flash_attention_2"};
// Other tasks: classes and labels, prefixes that pipelines put before a text, other kinds of tokens.
const Names kTasks{"classifier_dropout",
                   "classifier_dropout_rate",
                   "cls_token_id",
                   "id2label",
                   "image_token_index",
                   "label2id",
                   "n_positions",
                   "num_labels",
                   "prefix",
                   "problem_type",
                   "sep_token_id",
                   "task_specific_params",
                   "unk_token_id"};
// Parts that a model could have and this one has not.
const Names kUnused{"mamba_chunk_size",    "mamba_conv_bias",        "mamba_d_conv",
                    "mamba_d_head",        "mamba_d_state",          "mamba_expand",
                    "mamba_n_groups",      "mamba_n_heads",          "mamba_proj_bias",
                    "num_experts_per_tok", "normalization_function", "router_aux_loss_coef",
                    "time_step_limit"};
// Settings of a family in files of another, or of older programs, that Transformers does not read either.
const Names kNotRead{"full_attn_mod", "interpolate_factor", "rope_interleaved", "scalable_attention",
                     "use_mrope"};

bool is_in(const Names& names, std::string_view key) { return std::ranges::find(names, key) != names.end(); }

bool is_off(const nlohmann::json& value) {
  return value.is_null() || value == false || value == 0 || (value.is_structured() && value.empty());
}

bool is_read(const std::string& model_type, std::string_view key) {
  if (is_in(kEvery, key)) return true;
  if (is_of_two_stacks(model_type)) return is_in(kTwoStacks, key);
  const auto family = of_family().find(model_type);
  if (family == of_family().end()) return is_in(kT5, key);
  return is_in(kDecoder, key) || is_in(family->second, key);
}

bool is_without_effect(std::string_view key) {
  return is_in(kRecords, key) || is_in(kInitial, key) || is_in(kRunning, key) || is_in(kTasks, key) ||
         is_in(kUnused, key) || is_in(kNotRead, key) || is_generation_key(key);
}

void refuse_if_on(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || is_off(*found)) return;
  throw FormatError(concat("config.json: ", key, ": ", one_line(found->dump(), 60),
                           " is not supported: it would change what the model computes"));
}

}  // namespace

void check_config_keys(const nlohmann::json& config, const std::string& where) {
  const std::string model_type = config.at("model_type").get<std::string>();
  const bool is_t5 = !of_family().contains(model_type);
  for (const char* key :
       {"add_cross_attention", "per_layer_config", "pruned_heads", "tie_encoder_decoder", "quantization"})
    if (!is_read(model_type, key)) refuse_if_on(config, key);
  const auto both = config.find("is_encoder_decoder");
  if (both != config.end() && both->is_boolean() && both->get<bool>() != is_t5) {
    throw FormatError(concat("config.json: is_encoder_decoder: ", both->dump(),
                             " is not supported for model_type ", model_type));
  }
  if (is_of_two_stacks(model_type)) {
    for (const char* stack : {"encoder", "decoder"}) {
      nlohmann::json settings = config.at(stack);
      settings.erase("is_encoder_decoder");
      check_config_keys(settings, concat(where, ": ", stack));
    }
  }
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.items()) {
    if (!is_off(value) && !is_read(model_type, key) && !is_without_effect(key)) unknown.push_back(key);
  }
  if (unknown.empty()) return;
  warn_once(concat(where, ": keys that model_type ", model_type, " does not have are ignored, as in ",
                   "Transformers: ", join_some(unknown),
                   " (docs/dev/model-files.md lists those that are read)"));
}

}  // namespace trainer
