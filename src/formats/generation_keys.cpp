#include "formats/generation_keys.h"

#include <algorithm>

namespace trainer {
namespace {

// Those that generation reads, or refuses by name (src/generation/generation_config.cpp).
constexpr std::string_view kRead[]{"bad_words_ids",
                                   "begin_suppress_tokens",
                                   "cache_implementation",
                                   "constraints",
                                   "decoder_start_token_id",
                                   "diversity_penalty",
                                   "dola_layers",
                                   "early_stopping",
                                   "encoder_no_repeat_ngram_size",
                                   "encoder_repetition_penalty",
                                   "eos_token_id",
                                   "epsilon_cutoff",
                                   "eta_cutoff",
                                   "exponential_decay_length_penalty",
                                   "force_words_ids",
                                   "forced_bos_token_id",
                                   "forced_eos_token_id",
                                   "guidance_scale",
                                   "length_penalty",
                                   "max_length",
                                   "max_new_tokens",
                                   "max_time",
                                   "min_length",
                                   "min_new_tokens",
                                   "min_p",
                                   "no_repeat_ngram_size",
                                   "num_beam_groups",
                                   "num_beams",
                                   "num_return_sequences",
                                   "pad_token_id",
                                   "penalty_alpha",
                                   "renormalize_logits",
                                   "repetition_penalty",
                                   "sequence_bias",
                                   "stop_strings",
                                   "suppress_tokens",
                                   "temperature",
                                   "token_healing",
                                   "top_h",
                                   "top_k",
                                   "top_p",
                                   "typical_p",
                                   "watermarking_config"};

// Without effect on an answer here.
constexpr std::string_view kAskedFor[]{"do_sample"};               // the user says it
constexpr std::string_view kEmptyPrompt[]{"bos_token_id"};         // which is refused
constexpr std::string_view kNotFinite[]{"remove_invalid_values"};  // for scores of a broken model
// Where the cache lies, and ways to be faster with the same tokens.
constexpr std::string_view kSpeed[]{"assistant_confidence_threshold",
                                    "assistant_early_exit",
                                    "assistant_ensemble_weight",
                                    "assistant_lookbehind",
                                    "cache_config",
                                    "compile_config",
                                    "continuous_batching_config",
                                    "disable_compile",
                                    "is_assistant",
                                    "low_memory",
                                    "max_cache_len",
                                    "max_matching_ngram_size",
                                    "num_assistant_tokens",
                                    "num_assistant_tokens_schedule",
                                    "prefill_chunk_size",
                                    "prompt_lookup_num_tokens",
                                    "speculation_type",
                                    "target_lookbehind",
                                    "use_cache",
                                    "use_mtp"};
// What is returned besides the tokens.
constexpr std::string_view kReturned[]{"output_attentions", "output_hidden_states", "output_logits",
                                       "output_scores", "return_dict_in_generate"};
// Notes of the program that wrote the file, and keys that Transformers 5 no longer reads.
constexpr std::string_view kRecords[]{"_commit_hash",         "_from_model_config",
                                      "forced_decoder_ids",   "force_bos_token_to_be_generated",
                                      "transformers_version", "trust_remote_code"};

}  // namespace

bool is_generation_key(std::string_view key) {
  const auto has = [&](const auto& names) { return std::ranges::find(names, key) != std::end(names); };
  return has(kRead) || has(kAskedFor) || has(kEmptyPrompt) || has(kNotFinite) || has(kSpeed) ||
         has(kReturned) || has(kRecords);
}

}  // namespace trainer
