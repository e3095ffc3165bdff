// Counting what the data report tells, sample by sample; each thread has one, merged at the end.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "trainer/data/dataset.h"

#include "data/encode.h"

namespace trainer {

class Survey {
 public:
  explicit Survey(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  void add(const EncodedSample& encoded, const Dataset::Texts& texts, DataKind kind);
  void merge(const Survey& other);

  // The counts; kind and field names are not known here.
  DataReport report() const;

 private:
  void find_unknown_characters(std::string_view text, std::set<std::string>& found);
  bool is_unknown(const std::string& character);

  const Tokenizer* tokenizer_;
  DataReport counts_;
  std::set<std::string> unknown_in_inputs_, unknown_in_targets_;
  std::map<std::string, bool> is_unknown_;  // of the characters looked up so far
};

}  // namespace trainer
