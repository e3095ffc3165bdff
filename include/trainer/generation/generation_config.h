// The settings of generation: the values of generation_config.json, under Hugging Face's names
// (transformers, generation/configuration_utils.py), and what it does not have: seed and packing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

// When a beam search ends: as soon as num_beams sequences are finished (yes); when the open sequences are
// unlikely to become better than the finished ones (no); when they cannot become better (never).
enum class EarlyStopping { no, yes, never };

struct GenerationConfig {
  int64_t max_new_tokens = 256;
  int64_t max_length = 0;  // of prompt and answer of a decoder, or of a target, together; 0: no limit
  int64_t min_new_tokens = 0;
  int64_t min_length = 0;  // for a decoder, this includes the prompt

  bool do_sample = false;  // false: the most likely token, or beam search
  double temperature = 1.0;
  int64_t top_k = 50;  // 0: off
  double top_p = 1.0;
  double min_p = 0.0;
  uint64_t seed = 42;

  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;

  int64_t num_beams = 1;
  // Diverse beams (Vijayakumar et al. 2018): the beams search in groups of the same size, and a token costs a
  // group this much for each beam of an earlier group that has taken it in the same step.
  int64_t num_beam_groups = 1;
  double diversity_penalty = 0.0;
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::no;
  int64_t num_return_sequences = 1;

  std::vector<int32_t> eos_token_ids;  // a sequence ends with any of these
  std::optional<int32_t> decoder_start_token_id, forced_bos_token_id;
  std::vector<int32_t> forced_eos_token_ids;  // forced as the last token that max_new_tokens allows
  std::vector<int32_t> suppress_tokens, begin_suppress_tokens;
  bool renormalize_logits = false;
  // The only answers that are allowed, each with the token that ends it; empty: all are.
  std::vector<std::vector<int32_t>> choices;
  // An answer ends before the first of these in its text. They are for those who turn tokens into text
  // (AnswerText); generate() itself does not read them.
  std::vector<std::string> stop_strings;

  // Whether inputs of different lengths go through the model one after another, without padding; unset: on
  // the CPU. The answers are the same, except for rounding.
  std::optional<bool> packing;
};

// Reads generation_config.json or, if the directory has none, the generation keys of config.json (as
// GenerationConfig.from_model_config does). eos_token_id falls back to config.json. do_sample stays false
// whatever the file says: the user has to ask for sampling. Throws FormatError for values of a wrong type or
// out of range, for token ids of `vocab_size` and more, and for keys that would change the result but are not
// supported (penalty_alpha, bad_words_ids, ...); the message names them. Unknown keys are named in a warning.
// `adapter`: the directory of an adapter, whose generation_config.json takes precedence if it has one.
GenerationConfig read_generation_config(const std::filesystem::path& model_directory, int64_t vocab_size,
                                        const std::filesystem::path& adapter = {});

// Returns eos_token_id of the same files, without reading anything else; empty if there is none.
std::vector<int32_t> end_tokens(const std::filesystem::path& model_directory);

}  // namespace trainer
