// The layout of T5, mT5 and UMT5 in GGUF files: llama.cpp's architecture t5 (src/models/t5.cpp).
#include <cmath>
#include <map>
#include <regex>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "export/gguf_layout.h"
#include "models/t5.h"

namespace trainer {
namespace {

// What readers compute whatever the file says.
void check_t5(const T5Config& config) {
  constexpr int64_t distance = 128;
  if (config.max_distance != distance)
    refuse_in_gguf(concat("relative_attention_max_distance ", config.max_distance,
                          " cannot be expressed in GGUF, whose readers take ", distance));
  const Activation expected = config.gated ? Activation::gelu_tanh : Activation::relu;
  if (config.activation != expected)
    refuse_in_gguf("GGUF's architecture t5 has no activation other than relu, and gelu_new with a gate");
  if (config.decoder_layers > config.encoder_layers)
    log::warning(
        "config.json: num_decoder_layers is above num_layers: llama.cpp (October 2026) cannot run such a T5");
}

const std::map<std::string, std::string> kT5Attention{
    {"q.weight", "q.weight"},
    {"k.weight", "k.weight"},
    {"v.weight", "v.weight"},
    {"o.weight", "o.weight"},
    {"relative_attention_bias.weight", "rel_b.weight"},
};

// The name of a tensor of a block, after "enc.blk.3."; "": none.
std::string name_in_t5_block(bool decoder, const std::string& layer, const std::string& rest) {
  const bool is_last = layer == (decoder ? "2" : "1");
  const std::string attention = decoder && layer == "1" ? "cross_attn_" : "attn_";
  if (rest == "layer_norm.weight") return is_last ? "ffn_norm.weight" : attention + "norm.weight";
  if (is_last) {
    if (rest == "DenseReluDense.wi_0.weight") return "ffn_gate.weight";
    if (rest == "DenseReluDense.wi.weight" || rest == "DenseReluDense.wi_1.weight") return "ffn_up.weight";
    return rest == "DenseReluDense.wo.weight" ? "ffn_down.weight" : "";
  }
  for (const char* module : {"SelfAttention.", "EncDecAttention."}) {
    if (!rest.starts_with(module)) continue;
    const auto found = kT5Attention.find(rest.substr(std::string_view(module).size()));
    return found == kT5Attention.end() ? "" : attention + found->second;
  }
  return "";
}

GgufPart t5_part(std::string name, double times = 1.0) {
  GgufPart part;
  part.name = std::move(name);
  part.times = times;
  return part;
}

// Readers do not scale the decoder's outputs; the head's weights are scaled instead, so that a tied head is a
// tensor of its own.
std::vector<GgufPart> parts_of_t5(const std::string& tensor, bool has_head, double head_scale) {
  static const std::regex in_block(R"((encoder|decoder)\.block\.(\d+)\.layer\.(\d)\.(.+))");
  if (tensor == "shared.weight") {
    if (has_head || head_scale == 1.0) return {t5_part("token_embd.weight")};
    return {t5_part("token_embd.weight"), t5_part("output.weight", head_scale)};
  }
  if (tensor == "lm_head.weight") return {t5_part("output.weight", head_scale)};
  if (tensor == "encoder.final_layer_norm.weight") return {t5_part("enc.output_norm.weight")};
  if (tensor == "decoder.final_layer_norm.weight") return {t5_part("dec.output_norm.weight")};
  std::smatch match;
  if (!std::regex_match(tensor, match, in_block)) return {};
  const bool decoder = match[1] == "decoder";
  const std::string name = name_in_t5_block(decoder, match[3], match[4]);
  if (name.empty()) return {};
  return {t5_part(concat(decoder ? "dec" : "enc", ".blk.", match[2].str(), ".", name))};
}

}  // namespace

GgufLayout gguf_layout_of_t5(const nlohmann::json& config, bool has_head) {
  const T5Config facts(config);
  check_t5(facts);
  GgufKeys keys("t5");
  keys.number("context_length", config_size(config, "n_positions", 512));
  keys.number("embedding_length", facts.d_model);
  keys.number("feed_forward_length", facts.d_ff);
  keys.number("block_count", facts.encoder_layers);
  keys.number("decoder_block_count", facts.decoder_layers);
  keys.number("attention.head_count", facts.num_heads);
  keys.number("attention.key_length", facts.d_kv);
  keys.number("attention.value_length", facts.d_kv);
  keys.real("attention.layer_norm_epsilon", facts.epsilon);
  keys.real("attention.layer_norm_rms_epsilon", facts.epsilon);
  keys.number("attention.relative_buckets_count", facts.num_buckets);
  keys.number("decoder_start_token_id", facts.decoder_start_id);
  keys.number("vocab_size", facts.vocab_size);
  const double head_scale = facts.scale_outputs ? 1.0 / std::sqrt(static_cast<double>(facts.d_model)) : 1.0;
  GgufLayout layout;
  layout.architecture = "t5";
  layout.metadata = keys.all;
  layout.blocks = facts.encoder_layers;
  layout.parts = [=](const std::string& tensor) { return parts_of_t5(tensor, has_head, head_scale); };
  return layout;
}

}  // namespace trainer
