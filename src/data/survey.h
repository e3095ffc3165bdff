// Counting what the data report tells, sample by sample; each thread has one, merged at the end.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/data/dataset.h"

#include "data/encode.h"

namespace trainer {

class Survey {
 public:
  explicit Survey(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // A row and its samples; `texts` is called where they matter.
  void add(const std::vector<EncodedSample>& samples, const std::function<Dataset::Texts()>& texts,
           DataKind kind);
  void merge(const Survey& other);

  // What was counted, for an index, and from one.
  nlohmann::json to_json() const;
  void merge(const nlohmann::json& counted);

  // The counts; kind and field names are not known here.
  DataReport report() const;

 private:
  void add(const EncodedSample& encoded, const std::function<Dataset::Texts()>& texts, DataKind kind);
  void find_unknown_characters(std::string_view text, std::set<std::string>& found);
  bool is_unknown(const std::string& character);

  const Tokenizer* tokenizer_;
  DataReport counts_;
  std::set<std::string> unknown_in_inputs_, unknown_in_targets_;
  std::map<std::string, bool> is_unknown_;  // of the characters looked up so far
};

}  // namespace trainer
