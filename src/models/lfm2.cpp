// LFM2 and LFM2.5 (Liquid AI 2025): most layers are gated short convolutions, the others attention with norms
// on queries and keys. Shapes: B batch, S sequence, D hidden_size. Tested against transformers, models/lfm2.
#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/nn/linear.h"

#include "base/text.h"
#include "models/convolved_runs.h"
#include "models/decoder.h"
#include "nn/causal_convolution.h"

namespace trainer {
namespace {

// Of each token in_proj makes b, c and x [D]; the result is out_proj(c * conv(b * x)).
class ShortConvolution : public Mixer {
 public:
  explicit ShortConvolution(const DecoderConfig& c);
  at::Tensor forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const override;
  const char* name_in_layer() const override { return "conv"; }
  std::vector<std::string> default_lora_targets() const override { return {"in_proj"}; }

 private:
  CausalConvolution conv_;
  Linear in_proj_, out_proj_;
};

ShortConvolution::ShortConvolution(const DecoderConfig& c)
    : conv_(c.hidden_size, c.conv_width, c.conv_bias),
      in_proj_(c.hidden_size, 3 * c.hidden_size, c.conv_bias),
      out_proj_(c.hidden_size, c.hidden_size, c.conv_bias) {
  add("conv", conv_);
  add("in_proj", in_proj_);
  add("out_proj", out_proj_);
}

at::Tensor ShortConvolution::forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const {
  const std::vector<at::Tensor> bcx = in_proj_.forward(x, pass.rows, *pass.context).chunk(3, -1);
  const at::Tensor gated = (bcx[0] * bcx[2]).flatten(0, 1);  // [B * S, D]
  const at::Tensor weight = conv_.weight.as(gated.scalar_type());
  const TokenRuns runs = runs_of(pass, x.x.size(0), x.x.size(1));
  at::Tensor mixed = cache == nullptr ? causal_convolution(gated, weight, runs)
                                      : convolve_on(gated, weight, /*silu=*/false, runs, pass, *cache);
  if (conv_.bias) mixed = mixed + conv_.bias->as(gated.scalar_type());
  return out_proj_.forward(bcx[1] * mixed.view(x.x.sizes()), pass.rows, *pass.context);
}

}  // namespace

static std::unique_ptr<Mixer> make_lfm2_mixer(const DecoderConfig& c, size_t layer) {
  if (c.recurrent[layer]) return std::make_unique<ShortConvolution>(c);
  return make_attention(c, layer);
}

// The layers that are convolutions: by layer_types, or all that full_attn_idxs does not list.
static std::vector<bool> convolution_layers(const nlohmann::json& c, int64_t num_layers) {
  const nlohmann::json types = c.value("layer_types", nlohmann::json());
  const nlohmann::json attention = c.value("full_attn_idxs", nlohmann::json());
  std::vector<bool> out;
  if (types.is_null()) {
    for (int64_t i = 0; i < num_layers; i++)
      out.push_back(!attention.is_null() &&
                    std::ranges::find(attention, nlohmann::json(i)) == attention.end());
    return out;
  }
  const auto is_known = [](const nlohmann::json& type) { return type == "conv" || type == "full_attention"; };
  if (!types.is_array() || std::ssize(types) != num_layers || !std::ranges::all_of(types, is_known)) {
    throw FormatError(
        concat("config.json: layer_types: must be a list with conv or full_attention for each of the ",
               num_layers, " layers (num_hidden_layers), is ", one_line(types.dump(), 100)));
  }
  for (const nlohmann::json& type : types) out.push_back(type == "conv");
  return out;
}

// The width of the feed-forward, which the file says before two thirds are taken and it is rounded up.
static int64_t feed_forward_width(const nlohmann::json& c) {
  int64_t width = config_size(c, c.contains("block_ff_dim") ? "block_ff_dim" : "intermediate_size", 12288);
  if (!config_bool(c, "block_auto_adjust_ff_dim", true)) return width;
  width = static_cast<int64_t>(2.0 * static_cast<double>(width) / 3.0);
  if (c.contains("block_ffn_dim_multiplier") && c["block_ffn_dim_multiplier"].is_null()) return width;
  width =
      static_cast<int64_t>(config_double(c, "block_ffn_dim_multiplier", 1.0) * static_cast<double>(width));
  const int64_t multiple = config_size(c, "block_multiple_of", 256);
  return (width + multiple - 1) / multiple * multiple;
}

DecoderConfig lfm2_config(const nlohmann::json& config) {
  nlohmann::json c = with_defaults(config, {{"num_key_value_heads", 8},
                                            {"max_position_embeddings", 128000},
                                            {"pad_token_id", 0},
                                            {"norm_eps", 1e-5},
                                            {"rope_theta", 1e6},
                                            {"tie_word_embeddings", true}});
  c["intermediate_size"] = feed_forward_width(c);
  c["rms_norm_eps"] = c["norm_eps"];
  if (c.contains("tie_embedding")) c["tie_word_embeddings"] = c["tie_embedding"];
  DecoderConfig facts = read_decoder_config(c);
  facts.qk_norm = true;
  facts.recurrent = convolution_layers(c, facts.num_layers);
  facts.conv_width = config_size(c, "conv_L_cache", 3);
  facts.conv_bias = config_bool(c, "conv_bias", false);
  facts.layer_norms = {"operator_norm", "", "ffn_norm", ""};
  facts.final_norm = "embedding_norm";
  facts.mlp = "feed_forward";
  facts.gate_proj = "w1";
  facts.up_proj = "w3";
  facts.down_proj = "w2";
  facts.output_proj = "out_proj";
  facts.q_norm = "q_layernorm";
  facts.k_norm = "k_layernorm";
  facts.mixer = make_lfm2_mixer;
  return facts;
}

}  // namespace trainer
