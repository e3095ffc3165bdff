// The texts of a sample -> its ids and labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

struct EncodedSample {
  Sample sample;
  int64_t input_tokens = 0, target_tokens = 0;  // after truncation; kind text: all of it is input
  int64_t input_lost = 0, target_lost = 0;      // tokens that truncation took
  bool dropped = false;                         // too long, and data.long_samples is drop: it is no sample
};

// Truncates as Hugging Face's default call with truncation=True and this truncation_side: to max_length ids,
// a closing </s> kept. Returns how many ids fewer there are.
int64_t truncate_keeping_eos(std::vector<int32_t>& ids, int64_t max_length, std::optional<int32_t> eos,
                             TruncationSide side);

// The samples of a row's texts. What is longer than the configuration allows is cut at data.truncation_side,
// or marked as dropped, or of running text there are several (split).
//
// seq2seq: source and target each as the tokenizer's default call gives them, truncated with </s> kept.
//
// completion: prompt and completion are tokenised apart, because in generation the model sees the prompt's
// own tokens; joined first, the last word of the prompt could merge with the answer's beginning. The prompt
// gets the tokenizer's special tokens (BOS), the completion only an EOS at its end, unless it has one. Loss
// on the completion and its EOS. The whole is cut at max_length, as TRL does: a completion that was cut on
// the right has no EOS, so that the model does not learn to stop in mid-sentence.
//
// text: ids and an EOS, all supervised, cut in the same way. In pieces, each begins with the last token of
// the one before, so that every token but the first is learnt once; only the last piece ends in EOS.
std::vector<EncodedSample> encode_samples(std::string_view input, std::string_view target, DataKind kind,
                                          const DataConfig& config, const Tokenizer& tokenizer);

}  // namespace trainer
