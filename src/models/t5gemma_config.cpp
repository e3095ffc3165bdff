#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "models/t5gemma.h"

namespace trainer {

static DecoderConfig read_stack(nlohmann::json c, const char* name, bool second) {
  if (second && c.contains("attn_logit_softcapping") && !c["attn_logit_softcapping"].is_null()) {
    log::warning(concat("config.json: ", name, ".attn_logit_softcapping has no effect, as in Transformers: ",
                        "model_type t5gemma2 does not cap attention scores"));
    c.erase("attn_logit_softcapping");
  }
  try {
    const DecoderConfig facts = second ? gemma3_config(c) : gemma2_config(c);
    for (const RopeParameters& rope : {facts.rope, facts.sliding_rope.value_or(facts.rope)}) {
      if (rope.type != RopeType::dynamic && rope.type != RopeType::longrope) continue;
      throw FormatError(
          "config.json: a rope type that depends on the length (dynamic, longrope) is not supported for this "
          "model_type");
    }
    return facts;
  } catch (const FormatError& error) {
    throw FormatError(concat(error.what(), " (in the settings of the ", name, ")"));
  }
}

static int64_t token_of(const nlohmann::json& stack, const char* key, int64_t vocab_size) {
  const int64_t id = config_int(stack, key);
  if (id >= 0 && id < vocab_size) return id;
  throw FormatError(concat("config.json: decoder.", key, ": must be a token of the vocabulary, is ", id));
}

T5GemmaConfig::T5GemmaConfig(const nlohmann::json& c)
    : second(c.at("model_type") == "t5gemma2"),
      encoder(read_stack(c.at("encoder"), "encoder", second)),
      decoder(read_stack(c.at("decoder"), "decoder", second)),
      tied(config_bool(c, "tie_word_embeddings", true)),
      eoi_token(second ? config_int(c, "eoi_token_index", -1) : -1),
      pad_id(token_of(c.at("decoder"), "pad_token_id", decoder.vocab_size)),
      start_id(token_of(c.at("decoder"), "bos_token_id", decoder.vocab_size)),
      dropout(config_double(c, "dropout_rate", 0.0)) {
  if (second && encoder.hidden_size != decoder.hidden_size) {
    throw FormatError(concat("config.json: hidden_size ", encoder.hidden_size, " of the encoder and ",
                             decoder.hidden_size, " of the decoder: T5Gemma 2 needs the same in both"));
  }
}

// Transformers 5: T5Gemma's encoder sees `window` positions on each side
// (create_bidirectional_sliding_window_ mask), T5Gemma 2's `window` in all, one more behind than before if
// that is even (sliding_window_mask_ function).
Sight T5GemmaConfig::sliding_sight(bool of_decoder) const {
  const int64_t window = of_decoder ? decoder.sliding_window : encoder.sliding_window;
  if (of_decoder) return {window - 1, 0};
  return second ? Sight{(window + 1) / 2 - 1, window / 2} : Sight{window, window};
}

}  // namespace trainer
