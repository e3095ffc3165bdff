#include "export/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <regex>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "adapters/merged_tensor.h"
#include "base/mappings.h"
#include "formats/q8_0.h"
#include "models/decoder_config.h"

namespace trainer {
namespace {

class Keys {
 public:
  explicit Keys(std::string architecture) : architecture_(std::move(architecture)) {}
  void number(const char* key, int64_t value) { add(key, static_cast<uint32_t>(value)); }
  void real(const char* key, double value) { add(key, static_cast<float>(value)); }
  void add(const char* key, GgufValue value) {
    all.emplace_back(concat(architecture_, ".", key), std::move(value));
  }
  GgufMetadata all;

 private:
  std::string architecture_;
};

void add_scales(const DecoderConfig& facts, Keys& keys) {
  keys.real("attention.scale", facts.attention_scale);
  keys.real("embedding_scale", facts.embedding_scale);
  keys.real("residual_scale", facts.residual_scale);
  keys.real("logit_scale", 1.0 / facts.logit_scale);  // readers divide by it
}

// Some readers refuse files without the window; 0 is none.
void add_window(const DecoderConfig& facts, Keys& keys) {
  if (facts.sliding_window == 0) keys.number("attention.sliding_window", 0);
}

struct Family {
  const char* model_type;
  const char* architecture;
  DecoderConfig (*read)(const nlohmann::json&);
  bool interleaved = false;
  void (*add)(const DecoderConfig& facts, Keys& keys) = nullptr;  // further metadata
};

constexpr Family kFamilies[]{
    {"granite", "granite", granite_config, true, add_scales},
    {"llama", "llama", llama_config, true},
    {"mistral", "llama", mistral_config, true},
    {"phi3", "phi3", phi3_config, false, add_window},
    {"qwen2", "qwen2", qwen2_config},
    {"qwen3", "qwen3", qwen3_config},
};

[[noreturn]] void refuse(const std::string& what) {
  throw FormatError(concat("config.json: ", what, "; export safetensors"));
}

const Family& family_of(const std::string& model_type) {
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    known.push_back(family.model_type);
  }
  refuse(concat("model_type '", model_type, "' cannot be exported to GGUF (supported: ", join(known), ")"));
}

bool has_windows(const DecoderConfig& facts) {
  return std::ranges::find(facts.sliding, true) != facts.sliding.end();
}

// Refuses what the readers of the architecture would compute differently.
void check(const Family& family, const DecoderConfig& facts) {
  const std::string architecture = family.architecture;
  if (facts.activation != Activation::silu) refuse("GGUF has no hidden_act other than silu");
  if (architecture == "qwen3" && facts.qkv_bias)
    refuse("attention_bias is not part of GGUF's architecture qwen3");
  if (architecture != "llama" && architecture != "phi3" && has_windows(facts))
    refuse(concat("sliding_window is not part of GGUF's architecture ", architecture));
  if (facts.rope.type == RopeType::dynamic) refuse("GGUF has no rope type 'dynamic'");
  if (architecture != "phi3" && facts.rope.type == RopeType::longrope)
    refuse(concat("GGUF's architecture ", architecture, " has no rope type 'longrope'"));
  if (architecture == "granite" && facts.rope.type == RopeType::llama3)
    refuse("GGUF's architecture granite has no rope type 'llama3'");
  if (facts.rope.type == RopeType::yarn && !facts.rope.truncate)
    refuse("GGUF has no rope_scaling.truncate: false");
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

void add_rope(const RopeParameters& rope, Keys& keys) {
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

GgufMetadata metadata_of(const Family& family, const DecoderConfig& facts, const nlohmann::json& config) {
  Keys keys(family.architecture);
  keys.number("block_count", facts.num_layers);
  keys.number("context_length", config_size(config, "max_position_embeddings"));
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
  if (family.add != nullptr) family.add(facts, keys);
  return keys.all;
}

// Modules of a layer, and outside of one.
const std::map<std::string, std::string> kLayerNames{
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_up_proj", "ffn_up"},
};
const std::map<std::string, std::string> kOtherNames{
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.language_model.embed_tokens.weight", "token_embd.weight"},
    {"model.language_model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

}  // namespace

std::string GgufLayout::name_of(const std::string& tensor) const {
  static const std::regex in_layer(R"(model\.(?:language_model\.)?layers\.(\d+)\.(.+)\.(weight|bias))");
  std::smatch match;
  if (std::regex_match(tensor, match, in_layer)) {
    const auto found = kLayerNames.find(match[2]);
    if (found != kLayerNames.end())
      return concat("blk.", match[1].str(), ".", found->second, ".", match[3].str());
  } else if (const auto found = kOtherNames.find(tensor); found != kOtherNames.end()) {
    return found->second;
  }
  throw FormatError(concat("tensor '", tensor, "' has no name in GGUF; export safetensors"));
}

bool GgufLayout::is_reordered(const std::string& tensor) const {
  static const std::regex query_or_key(
      R"(model\.(?:language_model\.)?layers\.\d+\.self_attn\.[qk]_proj\.(weight|bias))");
  return interleaved && std::regex_match(tensor, query_or_key);
}

bool has_gguf(const std::string& model_type) {
  return std::ranges::any_of(kFamilies,
                             [&](const Family& family) { return family.model_type == model_type; });
}

GgufLayout gguf_layout(const nlohmann::json& config) {
  const Family& family = family_of(config.at("model_type"));
  const DecoderConfig facts = family.read(config);
  check(family, facts);
  GgufLayout layout{family.architecture, metadata_of(family, facts, config), facts.head_dim,
                    family.interleaved};
  if (has_windows(facts) && facts.sliding_window < config_size(config, "max_position_embeddings"))
    layout.sliding_window = facts.sliding_window;
  if (facts.rope.type == RopeType::llama3)
    layout.rope_factors["rope_freqs.weight"] = llama3_factors(facts.rope);
  if (facts.rope.type == RopeType::longrope) {
    const auto floats = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
    layout.rope_factors = {{"rope_factors_short.weight", floats(facts.rope.short_factor)},
                           {"rope_factors_long.weight", floats(facts.rope.long_factor)}};
  }
  return layout;
}

namespace {

void require_q8_range(const at::Tensor& values, const std::string& name) {
  const float largest = values.abs().max().item<float>();
  if (largest <= kQ8Largest) return;
  throw FormatError(concat("tensor '", name, "' has a value of magnitude ", largest,
                           ", beyond the range of Q8_0 (", kQ8Largest, "); export it as bf16 or fp32"));
}

}  // namespace

uint32_t gguf_file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  throw std::logic_error("a GgufType that is not known");
}

GgufType gguf_type_for(const std::vector<int64_t>& shape, GgufType wanted) {
  if (shape.size() < 2) return GgufType::f32;
  const bool in_blocks = shape.back() % kQ8BlockValues == 0;
  return wanted == GgufType::q8_0 && !in_blocks ? GgufType::f16 : wanted;
}

at::Tensor interleaved(const at::Tensor& rows, int64_t head_dim) {
  return rows.view({-1, 2, head_dim / 2, rows.size(1)}).transpose(1, 2).reshape({rows.size(0), -1});
}

void write_gguf_values(const at::Tensor& values, GgufType type, const std::string& name, std::ostream& out) {
  if (!values.isfinite().all().item<bool>())
    throw FormatError(
        concat("tensor '", name, "' has values that are NaN or infinite; the model is damaged"));
  at::Tensor bytes = values.contiguous();
  if (type == GgufType::f16) {
    require_fp16_range(values, name);
    bytes = values.to(at::kHalf);
  } else if (type == GgufType::bf16) {
    bytes = values.to(at::kBFloat16);
  } else if (type == GgufType::q8_0) {
    require_q8_range(values, name);
    const int64_t count = values.numel();
    const at::Tensor from = bytes;
    bytes = at::empty({count / kQ8BlockValues * kQ8BlockBytes}, at::kByte);
    quantise_q8_0(from.const_data_ptr<float>(), count, static_cast<std::byte*>(bytes.data_ptr()));
  }
  out.write(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::streamsize>(bytes.nbytes()));
}

at::Tensor read_gguf_values(const GgufTensor& tensor, int64_t first, int64_t rows) {
  const int64_t count = std::max<int64_t>(tensor.shape.empty() ? 1 : tensor.shape[0], 1);
  const auto row_bytes = static_cast<int64_t>(tensor.nbytes) / count;
  auto* data = const_cast<std::byte*>(tensor.data) + first * row_bytes;
  at::Tensor values;
  if (tensor.type == GgufType::q8_0) {
    values = at::empty({rows, tensor.shape.back()}, at::kFloat);
    dequantise_q8_0(data, values.numel(), values.mutable_data_ptr<float>());
  } else {
    at::ScalarType type = at::kFloat;
    if (tensor.type == GgufType::f16) type = at::kHalf;
    if (tensor.type == GgufType::bf16) type = at::kBFloat16;
    const int64_t columns = row_bytes / static_cast<int64_t>(at::elementSize(type));
    values = at::from_blob(data, {rows, columns}, at::dtype(type)).to(at::kFloat, false, /*copy=*/true);
  }
  release_pages(data, rows * row_bytes);
  return values;
}

bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type) {
  if (type == GgufType::f32) return values.equal(expected);
  if (type == GgufType::f16) return values.equal(expected.to(at::kHalf).to(at::kFloat));
  if (type == GgufType::bf16) return values.equal(expected.to(at::kBFloat16).to(at::kFloat));
  // Half a step, plus the error of 127 steps because the step itself is rounded to fp16 (2^-11, or 2^-25).
  const at::Tensor blocks = expected.reshape({-1, kQ8BlockValues});
  const at::Tensor step = blocks.abs().amax(1, true) / 127;
  const at::Tensor bound =
      step * 0.5001 + at::maximum(step * std::ldexp(127.0, -11), at::full({1}, std::ldexp(127.0, -25)));
  return values.reshape_as(blocks).sub(blocks).abs().le(bound).all().item<bool>();
}

}  // namespace trainer
