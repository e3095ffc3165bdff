#include "export/gguf_gemma4.h"

#include <algorithm>
#include <cstdint>

namespace trainer {
namespace {

// By layer, an array if layers differ.
template <class Of>
void add_by_layer(const DecoderConfig& facts, GgufKeys& keys, const char* key, const Of& of) {
  std::vector<int32_t> values;
  for (size_t i = 0; i < static_cast<size_t>(facts.num_layers); i++)
    values.push_back(static_cast<int32_t>(of(i)));
  if (std::ranges::count(values, values.front()) != std::ssize(values)) keys.set(key, values);
}

// Readers let a layer without keys use those of the last layer of its kind, if the last two with keys are one
// with a window and one without.
void check_shared_keys(const DecoderConfig& facts) {
  const auto own = static_cast<size_t>(facts.num_layers - facts.layers_sharing_keys);
  for (size_t i = own; i < static_cast<size_t>(facts.num_layers); i++) {
    if (facts.keys_of(i) + (facts.sliding[i] ? 2 : 1) != own)
      refuse_in_gguf(
          "num_kv_shared_layers: GGUF's readers of gemma4 expect the last two layers before them to be one "
          "with a window and one without");
  }
}

}  // namespace

void gemma4_in_gguf(const DecoderConfig& facts, const nlohmann::json& /*config*/, GgufKeys& keys,
                    DecoderNames& /*names*/) {
  check_shared_keys(facts);
  if (facts.per_layer_size > 0 && facts.per_layer_vocab != facts.vocab_size)
    refuse_in_gguf("GGUF has no vocab_size_per_layer_input that differs from vocab_size");
  if (facts.rope.type != RopeType::proportional && facts.rope.type != RopeType::standard)
    refuse_in_gguf("GGUF's architecture gemma4 has no such rope_type for full_attention");
  if (facts.sliding_rope->type != RopeType::standard)
    refuse_in_gguf("GGUF has no scaled rotary embedding for layers with a window");
  const HeadShape full = facts.full_heads.value_or(HeadShape{facts.num_kv_heads, facts.head_dim});
  for (const char* key : {"attention.key_length", "attention.value_length"})
    keys.set(key, static_cast<uint32_t>(full.head_dim));
  for (const char* key : {"attention.key_length_swa", "attention.value_length_swa"})
    keys.number(key, facts.head_dim);
  add_by_layer(facts, keys, "attention.head_count_kv",
               [&](size_t i) { return facts.heads_of(i).num_kv_heads; });
  add_by_layer(facts, keys, "feed_forward_length", [&](size_t i) { return facts.intermediate_of(i); });
  if (std::ranges::find(facts.sliding, true) == facts.sliding.end())
    keys.number("attention.sliding_window", facts.sliding_window);
  keys.add("attention.sliding_window_pattern", facts.sliding);
  keys.number("attention.shared_kv_layers", facts.layers_sharing_keys);
  keys.number("embedding_length_per_layer_input", facts.per_layer_size);
  keys.real("rope.freq_base_swa", facts.sliding_rope->theta);
  keys.number("rope.dimension_count_swa", facts.sliding_rope->rotary_dim);
  if (facts.logit_soft_cap != 0) keys.real("final_logit_softcapping", facts.logit_soft_cap);
}

// Pairs that stand still are divided until they do.
std::vector<float> proportional_factors(const RopeParameters& rope) {
  const int64_t pairs = rope.rotary_dim / 2;
  const double share = rope.type == RopeType::proportional ? rope.turned_share : 1.0;
  std::vector<float> factors(static_cast<size_t>(pairs), 1e30f);
  const auto turned = static_cast<int64_t>(share * static_cast<double>(pairs));
  std::fill_n(factors.begin(), turned, static_cast<float>(rope.factor));
  return factors;
}

}  // namespace trainer
