// Turns a word into ids: BPE or a unigram language model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trainer {

// Safe to use from several threads at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of a word (valid UTF-8). Throws DataError if the model has no ids for a part of it.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

}  // namespace trainer
