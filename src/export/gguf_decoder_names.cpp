#include "export/gguf_decoder_names.h"

#include <map>
#include <regex>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

GgufPart named(std::string name) {
  GgufPart part;
  part.name = std::move(name);
  return part;
}

// Queries and keys: one row of the first half of a head, one of the second, and so on.
at::Tensor interleaved_rows(int64_t head_dim) { return at::arange(head_dim).view({2, -1}).t().flatten(); }

// Readers repeat the key heads as a whole, 0 1 0 1, where Transformers repeats each, 0 0 1 1. So the value
// heads 0 1 2 3 are stored as 0 2 1 3, behind `before` rows that stay.
at::Tensor tiled_heads(const DeltaShape& shape, int64_t width, int64_t before = 0) {
  const at::Tensor heads = at::arange(shape.value_heads * width).view({shape.key_heads, -1, width});
  return at::cat({at::arange(before), heads.transpose(0, 1).flatten() + before});
}

void reorder_rows(GgufPart& part, const at::Tensor& order) {
  part.row_order = order;
  part.unit = order.size(0);
}

// The tensors of a Gated DeltaNet, by their names after "linear_attn.".
std::vector<GgufPart> parts_of_delta_net(const std::string& block, const std::string& rest,
                                         const DeltaShape& shape) {
  static const std::map<std::string, const char*> names{{"in_proj_qkv.weight", "attn_qkv.weight"},
                                                        {"in_proj_z.weight", "attn_gate.weight"},
                                                        {"in_proj_b.weight", "ssm_beta.weight"},
                                                        {"in_proj_a.weight", "ssm_alpha.weight"},
                                                        {"A_log", "ssm_a"},
                                                        {"dt_bias", "ssm_dt.bias"},
                                                        {"conv1d.weight", "ssm_conv1d.weight"},
                                                        {"norm.weight", "ssm_norm.weight"},
                                                        {"out_proj.weight", "ssm_out.weight"}};
  const auto found = names.find(rest);
  if (found == names.end()) return {};
  GgufPart part = named(block + found->second);
  const std::string layer = rest.substr(0, rest.find('.'));
  if (layer == "A_log") part.value = GgufPart::Value::minus_exp;
  part.squeezed = layer == "conv1d";
  if (shape.value_heads == shape.key_heads || layer == "norm") return {part};
  const int64_t keys = shape.columns() - shape.values();
  if (layer == "in_proj_qkv" || layer == "conv1d") {
    reorder_rows(part, tiled_heads(shape, shape.value_dim, keys));
  } else if (layer == "in_proj_z") {
    reorder_rows(part, tiled_heads(shape, shape.value_dim));
  } else if (layer == "out_proj") {
    part.column_order = tiled_heads(shape, shape.value_dim);
  } else {
    reorder_rows(part, tiled_heads(shape, 1));
  }
  return {part};
}

// The name of a layer's module; "": none.
std::string name_of_module(const std::string& module, const DecoderConfig& facts, const DecoderNames& names) {
  const LayerNorms& norms = facts.layer_norms;
  const std::map<std::string, std::string> all{
      {norms.before_attention, "attn_norm"},
      {norms.after_attention, "post_attention_norm"},
      {norms.before_mlp, names.before_mlp},
      {norms.after_mlp, "post_ffw_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn." + facts.output_proj, "attn_output"},
      {"self_attn." + facts.q_norm, "attn_q_norm"},
      {"self_attn." + facts.k_norm, "attn_k_norm"},
      {"self_attn." + facts.fused_qkv, "attn_qkv"},
      {facts.mlp + "." + facts.gate_proj, "ffn_gate"},
      {facts.mlp + "." + facts.up_proj, "ffn_up"},
      {facts.mlp + "." + facts.fused_gate_up, "ffn_up"},
      {facts.mlp + "." + facts.down_proj, "ffn_down"},
      {"conv.in_proj", "shortconv.in_proj"},
      {"conv.conv", "shortconv.conv"},
      {"conv.out_proj", "shortconv.out_proj"},
      {"per_layer_input_gate", "inp_gate"},
      {"per_layer_projection", "proj"},
      {"post_per_layer_input_norm", "post_norm"},
  };
  const auto found = all.find(module);
  return found == all.end() ? "" : found->second;
}

std::vector<GgufPart> split_in_two(const GgufPart& part, const std::string& block, const std::string& suffix,
                                   int64_t rows) {
  GgufPart gate = part, up = part;
  gate.name = concat(block, "ffn_gate.", suffix);
  up.name = concat(block, "ffn_up.", suffix);
  gate.rows = up.rows = up.first_row = rows;
  return {gate, up};
}

std::vector<GgufPart> parts_of_layer(const std::string& block, const std::string& module,
                                     const std::string& suffix, const DecoderConfig& facts,
                                     const DecoderNames& names) {
  const std::string name = name_of_module(module, facts, names);
  if (name.empty()) return {};
  GgufPart part = named(concat(block, name, ".", suffix));
  const bool is_norm = name.ends_with("_norm");
  if (is_norm && facts.norm.scale == NormScale::one_plus_weight) part.value = GgufPart::Value::plus_one;
  if (names.reorders_heads && (name == "attn_q" || name == "attn_k"))
    reorder_rows(part, interleaved_rows(facts.head_dim));
  if (name == (facts.qk_norm ? "attn_q_norm" : "attn_q")) part.times = names.query_scale;
  part.squeezed = module == "conv.conv" && suffix == "weight";
  if (names.splits_gate_up && module == facts.mlp + "." + facts.fused_gate_up)
    return split_in_two(part, block, suffix, facts.intermediate_size);
  return {part};
}

}  // namespace

std::vector<GgufPart> parts_of_decoder(const std::string& tensor, const DecoderConfig& facts,
                                       const DecoderNames& names) {
  static const std::regex of_layer(R"(model\.layers\.(\d+)\.(.+))"), of_module(R"((.+)\.(weight|bias))");
  if (tensor == "model.embed_tokens.weight") {
    std::vector<GgufPart> parts{named("token_embd.weight")};
    if (names.copies_embedding) parts.push_back(named("output.weight"));
    return parts;
  }
  static const std::map<std::string, const char*> single{
      {"lm_head.weight", "output.weight"},
      {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
      {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight"},
      {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
  if (const auto found = single.find(tensor); found != single.end()) return {named(found->second)};
  if (tensor == concat("model.", facts.final_norm, ".weight")) {
    GgufPart part = named(concat(names.final_norm, ".weight"));
    if (facts.norm.scale == NormScale::one_plus_weight) part.value = GgufPart::Value::plus_one;
    return {part};
  }
  std::smatch layer, module;
  if (!std::regex_match(tensor, layer, of_layer)) return {};
  const std::string block = concat("blk.", layer[1].str(), "."), rest = layer[2];
  constexpr std::string_view delta_net = "linear_attn.";
  if (rest.starts_with(delta_net))
    return parts_of_delta_net(block, rest.substr(delta_net.size()), facts.delta);
  if (rest == "layer_scalar") return {named(block + "layer_output_scale.weight")};
  if (!std::regex_match(rest, module, of_module)) return {};
  return parts_of_layer(block, module[1], module[2], facts, names);
}

}  // namespace trainer
