// Text with parts taken out, which an encoder-decoder learns to fill in: span corruption (Raffel et al.,
// "Exploring the limits of transfer learning with a unified text-to-text transformer", 2020, 3.1.4), prefixes
// (3.2.3), and UL2's mixture of both (Tay et al., "UL2: Unifying language learning paradigms", 2022, 3.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// One way to take parts out.
struct Denoiser {
  double rate = 0.15;              // share of the tokens that are taken out
  double span = 3;                 // mean length of a part; 0: one part, the end of the text
  bool marks = true;               // a sentinel stands for each part: <extra_id_0>, <extra_id_1>, ...
  std::vector<int32_t> mode = {};  // ids in front of the text, which say what to do (UL2)
};

// What becomes of a text. All of it follows from its number of tokens, so lengths are the same in each epoch.
struct NoisedLengths {
  int64_t taken_out = 0, parts = 0;
  int64_t source = 0, target = 0;  // with sentinels, mode and </s>
};
NoisedLengths lengths_of(const Denoiser& denoiser, int64_t tokens);

// The denoisers of data.noise and the ids that they use.
class SpanNoise {
 public:
  // Throws ConfigError if the tokenizer has too few sentinels, or none, or if no text fits in the lengths.
  SpanNoise(const DataConfig& config, const Tokenizer& tokenizer);

  size_t denoisers() const { return denoisers_.size(); }
  // The most tokens that a denoiser can make a sample of.
  int64_t longest(size_t denoiser) const { return longest_[denoiser]; }
  NoisedLengths lengths(size_t denoiser, int64_t tokens) const {
    return lengths_of(denoisers_[denoiser], tokens);
  }
  // Returns source and target of at least two tokens. Where the parts are is a function of `key` and of the
  // tokens.
  Sample sample(size_t denoiser, std::span<const int32_t> ids, uint64_t key) const;

 private:
  void check_sentinels(const DataConfig& config) const;

  std::vector<Denoiser> denoisers_;
  std::vector<int64_t> longest_;
  std::vector<int32_t> sentinels_;
  int32_t eos_ = 0;
};

}  // namespace trainer
