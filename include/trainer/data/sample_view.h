// A sample as the model sees it, in readable form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

struct SampleView {
  struct Piece {
    std::string text;
    bool supervised = false;
    float weight = 1;  // in the loss, if it is supervised
  };
  std::string origin;
  // Concatenated, the pieces are tokenizer.decode() of the ids, special tokens included.
  std::vector<Piece> input;   // decoders: the whole sample
  std::vector<Piece> target;  // encoder-decoders only
  int64_t input_tokens = 0, target_tokens = 0, supervised_tokens = 0;
};

SampleView view_of(const Sample& sample, bool encoder_decoder, const std::string& origin,
                   const Tokenizer& tokenizer);

}  // namespace trainer
