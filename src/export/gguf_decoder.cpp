// The layouts of decoders in GGUF files, family by family: what llama.cpp's architectures can say.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <regex>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "export/gguf_decoder_names.h"
#include "export/gguf_gemma4.h"
#include "export/gguf_layout.h"
#include "models/decoder_config.h"

namespace trainer {
namespace {

using Facts = DecoderConfig;

// What an architecture's readers know.
struct ArchitectureOfReaders {
  const char* name;
  bool rotates_neighbours = false;  // dimensions 2i and 2i + 1 of a head are a pair; else i and i + half
  bool qkv_bias = false, other_biases = false;
  bool windows = false;      // layers may have a window
  bool llama3_rope = false;  // divisors of the frequencies, of type llama3
  bool longrope = false;
  bool proportional = false;  // full layers have divisors of the frequencies, in every file
  bool gemma4_vocabulary = false;
  Activation activation = Activation::silu;
};

constexpr ArchitectureOfReaders kLlama{
    .name = "llama", .rotates_neighbours = true, .qkv_bias = true, .other_biases = true, .llama3_rope = true};
constexpr ArchitectureOfReaders kGranite{
    .name = "granite", .rotates_neighbours = true, .qkv_bias = true, .other_biases = true};
constexpr ArchitectureOfReaders kMistral3{.name = "mistral3", .rotates_neighbours = true};
constexpr ArchitectureOfReaders kSmolLm3{.name = "smollm3", .rotates_neighbours = true};
constexpr ArchitectureOfReaders kGlm4{.name = "glm4", .rotates_neighbours = true, .qkv_bias = true};
constexpr ArchitectureOfReaders kChatGlm{.name = "chatglm", .rotates_neighbours = true, .qkv_bias = true};
constexpr ArchitectureOfReaders kErnie{.name = "ernie4_5", .rotates_neighbours = true};
constexpr ArchitectureOfReaders kPhi3{.name = "phi3", .longrope = true};
constexpr ArchitectureOfReaders kQwen2{.name = "qwen2", .qkv_bias = true};
constexpr ArchitectureOfReaders kQwen3{.name = "qwen3"};
constexpr ArchitectureOfReaders kQwen35{.name = "qwen35"};
constexpr ArchitectureOfReaders kLfm2{.name = "lfm2"};
constexpr ArchitectureOfReaders kOlmo2{.name = "olmo2", .windows = true};
constexpr ArchitectureOfReaders kGemma{.name = "gemma", .activation = Activation::gelu_tanh};
constexpr ArchitectureOfReaders kGemma2{
    .name = "gemma2", .windows = true, .activation = Activation::gelu_tanh};
constexpr ArchitectureOfReaders kGemma3{
    .name = "gemma3", .windows = true, .activation = Activation::gelu_tanh};
constexpr ArchitectureOfReaders kGemma4{.name = "gemma4",
                                        .windows = true,
                                        .proportional = true,
                                        .gemma4_vocabulary = true,
                                        .activation = Activation::gelu_tanh};

// One family's own keys, refusals and names.
using Adapt = void (*)(const Facts& facts, const nlohmann::json& config, GgufKeys& keys, DecoderNames& names);

bool is_near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

bool has_windows(const Facts& facts) { return std::ranges::find(facts.sliding, true) != facts.sliding.end(); }

// Readers know only windows in all layers but every `period`th.
void require_period(const std::vector<bool>& layers, size_t period, const char* what) {
  for (size_t i = 0; i < layers.size(); i++) {
    if (layers[i] != ((i + 1) % period != 0))
      refuse_in_gguf(
          concat(what, " cannot be expressed in GGUF, whose readers expect another kind of layer in every ",
                 period, "th place"));
  }
}

void granite(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames&) {
  keys.real("attention.scale", facts.attention_scale);
  keys.real("embedding_scale", facts.embedding_scale);
  keys.real("residual_scale", facts.residual_scale);
  keys.real("logit_scale", 1.0 / facts.logit_scale);  // readers divide by it
  const bool rotated = std::ranges::find(facts.rotated, true) != facts.rotated.end();
  if (!rotated) keys.add("rope.scaling.finetuned", false);  // no rotary embedding
}

void granite_hybrid(const Facts& facts, const nlohmann::json& config, GgufKeys& keys, DecoderNames& names) {
  granite(facts, config, keys, names);
  names.splits_gate_up = true;
}

// Some readers refuse files without the window; 0 is none.
void phi3(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames&) {
  if (facts.sliding_window == 0) keys.number("attention.sliding_window", 0);
}

void smollm3(const Facts& facts, const nlohmann::json&, GgufKeys&, DecoderNames&) {
  require_period(facts.rotated, 4, "no_rope_layers");
}

// Readers take the scale of attention scores from head_dim, except for the largest model, of `layers` layers.
double scale_of_gemma_readers(const Facts& facts, int64_t layers) {
  const int64_t width = facts.num_layers == layers ? facts.hidden_size / facts.num_heads : facts.head_dim;
  return 1.0 / std::sqrt(static_cast<double>(width));
}

void refuse_own_head(const DecoderNames& names) {
  if (names.has_head)
    refuse_in_gguf("tie_word_embeddings: false cannot be expressed in GGUF's architectures of Gemma");
}

// Readers take the size of the biases of queries from hidden_size.
void glm(const Facts& facts, const nlohmann::json&, GgufKeys&, DecoderNames&) {
  if (facts.qkv_bias && facts.head_dim * facts.num_heads != facts.hidden_size)
    refuse_in_gguf(
        "attention_bias with head_dim other than hidden_size / num_attention_heads cannot be "
        "expressed in GGUF's architecture chatglm");
}

void gemma(const Facts& facts, const nlohmann::json&, GgufKeys&, DecoderNames& names) {
  refuse_own_head(names);
  if (facts.logit_soft_cap != 0) refuse_in_gguf("GGUF's architecture gemma has no final_logit_softcapping");
}

void gemma2(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames& names) {
  refuse_own_head(names);
  require_period(facts.sliding, 2, "layer_types");
  if (facts.attention_soft_cap == 0 || facts.logit_soft_cap == 0)
    refuse_in_gguf("GGUF's architecture gemma2 needs attn_logit_softcapping and final_logit_softcapping");
  keys.real("attn_logit_softcapping", facts.attention_soft_cap);
  keys.real("final_logit_softcapping", facts.logit_soft_cap);
  const double readers = scale_of_gemma_readers(facts, 46);
  if (!is_near(facts.attention_scale, readers)) names.query_scale = facts.attention_scale / readers;
}

void gemma3(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames& names) {
  refuse_own_head(names);
  require_period(facts.sliding, 6, "layer_types");
  if (facts.logit_soft_cap != 0)
    refuse_in_gguf("final_logit_softcapping cannot be expressed in GGUF's architecture gemma3");
  if (facts.sliding_rope->type != RopeType::standard)
    refuse_in_gguf("GGUF has no scaled rotary embedding for layers with a window");
  keys.real("rope.freq_base_swa", facts.sliding_rope->theta);
  const double readers = scale_of_gemma_readers(facts, 62);
  if (!is_near(facts.attention_scale, readers)) names.query_scale = facts.attention_scale / readers;
}

void olmo(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames& names) {
  names.copies_embedding = !names.has_head;  // readers need a head
  if (!has_windows(facts)) return;
  require_period(facts.sliding, 4, "layer_types");
  keys.add("attention.sliding_window_pattern", facts.sliding);
  if (facts.sliding_rope->type != RopeType::standard || facts.sliding_rope->theta != facts.rope.theta)
    refuse_in_gguf(
        "GGUF has no rotary embedding of their own for layers with a window in architecture olmo2");
}

void ministral3(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames&) {
  if (facts.query_growth_beta == 0) return;
  if (facts.rope.type != RopeType::yarn ||
      facts.query_growth_length != facts.rope.original_max_position_embeddings)
    refuse_in_gguf("llama_4_scaling_beta needs rope type yarn in GGUF, with the same original length");
  keys.real("attention.temperature_scale", facts.query_growth_beta);
}

// The rotary embedding of texts and images: by three coordinates in turn, which are the same for texts.
std::vector<int32_t> rope_sections(const RopeParameters& rope) {
  const auto pairs = static_cast<int32_t>(rope.rotary_dim / 2);
  return {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
}

void qwen3_5(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames& names) {
  if (facts.delta.key_dim != facts.delta.value_dim)
    refuse_in_gguf("linear_key_head_dim that differs from linear_value_head_dim cannot be expressed in GGUF");
  const auto full = std::ranges::find(facts.recurrent, false) - facts.recurrent.begin();
  require_period(facts.recurrent, static_cast<size_t>(full) + 1, "layer_types");
  keys.number("full_attention_interval", full + 1);
  keys.add("rope.dimension_sections", rope_sections(facts.rope));
  keys.number("ssm.conv_kernel", facts.conv_width);
  keys.number("ssm.state_size", facts.delta.key_dim);
  keys.number("ssm.group_count", facts.delta.key_heads);
  keys.number("ssm.time_step_rank", facts.delta.value_heads);
  keys.number("ssm.inner_size", facts.delta.values());
  names.before_mlp = "post_attention_norm";
}

// A layer without key heads is a convolution.
void lfm2(const Facts& facts, const nlohmann::json&, GgufKeys& keys, DecoderNames& names) {
  if (facts.conv_bias) refuse_in_gguf("conv_bias is not part of GGUF's architecture lfm2");
  std::vector<int32_t> key_heads;
  for (const bool convolution : facts.recurrent)
    key_heads.push_back(convolution ? 0 : static_cast<int32_t>(facts.num_kv_heads));
  keys.set("attention.head_count_kv", key_heads);
  keys.number("shortconv.l_cache", facts.conv_width);
  names.final_norm = "token_embd_norm";
}

struct FamilyInGguf {
  const char* model_type;
  const ArchitectureOfReaders& readers;
  DecoderConfig (*read)(const nlohmann::json&);
  Adapt adapt = nullptr;
};

constexpr FamilyInGguf kFamilies[]{
    {"ernie4_5", kErnie, ernie4_5_config},
    {"gemma", kGemma, gemma_config, gemma},
    {"gemma2", kGemma2, gemma2_config, gemma2},
    {"gemma3_text", kGemma3, gemma3_config, gemma3},
    {"gemma4_text", kGemma4, gemma4_config, gemma4_in_gguf},
    {"gemma4_unified_text", kGemma4, gemma4_unified_config, gemma4_in_gguf},
    {"glm", kChatGlm, glm_config, glm},
    {"glm4", kGlm4, glm4_config},
    {"granite", kGranite, granite_config, granite},
    {"granitemoehybrid", kGranite, granite_hybrid_config, granite_hybrid},
    {"internlm3", kLlama, internlm3_config},
    {"iquestcoder", kLlama, iquestcoder_config},
    {"lfm2", kLfm2, lfm2_config, lfm2},
    {"llama", kLlama, llama_config},
    {"ministral", kLlama, ministral_config},
    {"ministral3", kMistral3, ministral3_config, ministral3},
    {"mistral", kLlama, mistral_config},
    {"olmo2", kOlmo2, olmo2_config, olmo},
    {"olmo3", kOlmo2, olmo3_config, olmo},
    {"phi3", kPhi3, phi3_config, phi3},
    {"qwen2", kQwen2, qwen2_config},
    {"qwen2_5_vl_text", kQwen2, qwen2_5_vl_config},
    {"qwen2_vl_text", kQwen2, qwen2_vl_config},
    {"qwen3", kQwen3, qwen3_config},
    {"qwen3_5_text", kQwen35, qwen3_5_config, qwen3_5},
    {"qwen3_vl_text", kQwen3, qwen3_vl_config},
    {"smollm3", kSmolLm3, smollm3_config, smollm3},
};

const FamilyInGguf* family_of(const std::string& model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &FamilyInGguf::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

// The readers ignore the windows of these, and a warning says so.
bool ignores_windows(const ArchitectureOfReaders& readers) {
  const std::string name = readers.name;
  return name == "llama" || name == "phi3" || name == "mistral3";
}

// Refuses what the readers of the architecture would compute differently.
void check(const ArchitectureOfReaders& readers, const Facts& facts) {
  const std::string in = concat("GGUF's architecture ", readers.name);
  if (facts.activation != readers.activation)
    refuse_in_gguf(concat(in, " has no hidden_act other than ",
                          readers.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh"));
  if ((facts.qkv_bias && !readers.qkv_bias) || (facts.output_bias && !readers.other_biases))
    refuse_in_gguf(concat("attention_bias is not part of ", in));
  if (facts.mlp_bias && !readers.other_biases) refuse_in_gguf(concat("mlp_bias is not part of ", in));
  if (has_windows(facts) && !readers.windows && !ignores_windows(readers))
    refuse_in_gguf(concat("sliding_window is not part of ", in));
  const RopeParameters& rope = facts.rope;
  if (rope.type == RopeType::dynamic) refuse_in_gguf("GGUF has no rope type 'dynamic'");
  if (rope.type == RopeType::longrope && !readers.longrope)
    refuse_in_gguf(concat(in, " has no rope type 'longrope'"));
  if (rope.type == RopeType::llama3 && !readers.llama3_rope)
    refuse_in_gguf(concat(in, " has no rope type 'llama3'"));
  if (rope.type == RopeType::yarn && !rope.truncate)
    refuse_in_gguf("GGUF has no rope_scaling.truncate: false");
}

// As transformers computes it (_compute_llama3_parameters), as divisors.
std::vector<float> llama3_factors(const RopeParameters& rope) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  std::vector<float> factors;
  for (int64_t i = 0; i < rope.rotary_dim / 2; i++) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim);
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, exponent);
    double factor = 1;
    if (wavelength > context / rope.low_freq_factor) {
      factor = rope.factor;
    } else if (wavelength >= context / rope.high_freq_factor) {
      const double smooth =
          (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

void add_rope(const RopeParameters& rope, GgufKeys& keys) {
  keys.number("rope.dimension_count", rope.rotary_dim);
  keys.real("rope.freq_base", rope.theta);
  if (rope.type == RopeType::linear || rope.type == RopeType::yarn) {
    keys.add("rope.scaling.type", std::string(rope.type == RopeType::linear ? "linear" : "yarn"));
    keys.real("rope.scaling.factor", rope.factor);
  }
  if (rope.type == RopeType::longrope) {
    keys.number("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    keys.real("rope.scaling.attn_factor", rope.attention_factor);
  }
  if (rope.type != RopeType::yarn) return;
  keys.number("rope.scaling.original_context_length", rope.original_max_position_embeddings);
  keys.real("rope.scaling.yarn_beta_fast", rope.beta_fast);
  keys.real("rope.scaling.yarn_beta_slow", rope.beta_slow);
  // Readers compute the usual factor from `factor` themselves.
  const double usual = rope.factor <= 1 ? 1 : 0.1 * std::log(rope.factor) + 1;
  if (rope.attention_factor != usual) keys.real("rope.scaling.attn_factor", rope.attention_factor / usual);
}

GgufKeys keys_of(const ArchitectureOfReaders& readers, const Facts& facts, const nlohmann::json& config) {
  GgufKeys keys(readers.name);
  keys.number("block_count", facts.num_layers);
  keys.number("context_length",
              config_size(config, "max_position_embeddings", facts.rope.max_position_embeddings));
  keys.number("embedding_length", facts.hidden_size);
  keys.number("feed_forward_length", facts.intermediate_size);
  keys.number("attention.head_count", facts.num_heads);
  keys.number("attention.head_count_kv", facts.num_kv_heads);
  keys.number("attention.key_length", facts.head_dim);
  keys.number("attention.value_length", facts.head_dim);
  keys.real("attention.layer_norm_rms_epsilon", facts.norm.epsilon);
  keys.number("vocab_size", facts.vocab_size);
  if (has_windows(facts)) keys.number("attention.sliding_window", facts.sliding_window);
  add_rope(facts.rope, keys);
  return keys;
}

void add_rope_factors(const ArchitectureOfReaders& readers, const RopeParameters& rope, GgufLayout& layout) {
  if (readers.proportional) layout.rope_factors["rope_freqs.weight"] = proportional_factors(rope);
  if (rope.type == RopeType::llama3) layout.rope_factors["rope_freqs.weight"] = llama3_factors(rope);
  if (rope.type != RopeType::longrope) return;
  const auto floats = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  layout.rope_factors = {{"rope_factors_short.weight", floats(rope.short_factor)},
                         {"rope_factors_long.weight", floats(rope.long_factor)}};
}

}  // namespace

bool is_decoder_with_gguf(const std::string& model_type) { return family_of(model_type) != nullptr; }

GgufLayout gguf_layout_of_decoder(const nlohmann::json& config, bool has_head) {
  const FamilyInGguf& family = *family_of(config.at("model_type").get<std::string>());
  const ArchitectureOfReaders& readers = family.readers;
  auto facts = std::make_shared<const Facts>(family.read(config));
  check(readers, *facts);
  GgufKeys keys = keys_of(readers, *facts, config);
  DecoderNames names;
  names.has_head = has_head;
  names.reorders_heads = readers.rotates_neighbours && !facts->rotates_neighbours;
  if (family.adapt != nullptr) family.adapt(*facts, config, keys, names);
  GgufLayout layout;
  layout.architecture = readers.name;
  layout.metadata = keys.all;
  layout.blocks = facts->num_layers;
  layout.gemma4_vocabulary = readers.gemma4_vocabulary;
  layout.parts = [facts, names](const std::string& tensor) {
    return parts_of_decoder(tensor, *facts, names);
  };
  if (has_windows(*facts) && ignores_windows(readers) &&
      facts->sliding_window <
          config_size(config, "max_position_embeddings", facts->rope.max_position_embeddings))
    layout.sliding_window = facts->sliding_window;
  add_rope_factors(readers, facts->rope, layout);
  return layout;
}

}  // namespace trainer
