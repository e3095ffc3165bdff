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
  int64_t input_lost = 0, target_lost = 0;      // tokens lost to truncation
  std::vector<int32_t> kept;                    // span corruption: what RowEncoder::from_kept() makes it of
  bool dropped = false;                         // too long with data.long_samples: drop; not used as a sample
  bool has_answer = true;                       // conversations: the assistant says something
  bool has_empty_answer = false;                // and one of its answers that count has no text
  bool equal_sides = false;                     // of a row with two answers that are the same
  bool counts = true;                           // false: the weight of its row is 0, so nothing is learned
};

// Truncates as Hugging Face does by default with truncation=True and this truncation_side: to max_length ids,
// keeping a closing </s>. Returns how many ids were removed.
int64_t truncate_keeping_eos(std::vector<int32_t>& ids, int64_t max_length, std::optional<int32_t> eos,
                             TruncationSide side);

// Multiplies the weights of all labels. With 0, they are no longer learned.
void weigh(std::vector<EncodedSample>& samples, float weight);

// Returns a decoder's sample of ids of which some are learned. `weights`: one for each id; empty: all are 1.
// What lies beyond max_length is left out at data.truncation_side, without regard to end tokens.
EncodedSample encode_marked(const std::vector<int32_t>& ids, const std::vector<bool>& learn,
                            const std::vector<float>& weights, const DataConfig& config);

// Returns the samples of a row's texts. Samples that are too long are truncated at data.truncation_side,
// marked as dropped, or (running text) split into several samples.
//
// seq2seq: source and target each as the tokenizer's default call gives them, truncated with </s> kept.
//
// completion: prompt and completion are tokenized separately, because in generation the model sees the tokens
// of the prompt alone. If they were joined first, the last word of the prompt could merge with the beginning
// of the answer. The prompt gets the tokenizer's special tokens (BOS). The completion gets only an EOS at its
// end, unless it has one. The loss is on the completion and its EOS. The whole is truncated at max_length, as
// in TRL: a completion that is truncated on the right has no EOS, so the model does not learn to stop in
// mid-sentence.
//
// text: ids and an EOS, all supervised, truncated in the same way. When split, each piece begins with the
// last token of the piece before it, so that every token but the first is learned once; only the last piece
// ends in EOS.
std::vector<EncodedSample> encode_samples(std::string_view input, std::string_view target, DataKind kind,
                                          const DataConfig& config, const Tokenizer& tokenizer);

}  // namespace trainer
