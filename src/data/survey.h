// Counts rows for the data report; each thread has a Survey, and they are merged at the end.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/report.h"

#include "data/encode.h"
#include "data/spelling.h"

namespace trainer {

class Survey {
 public:
  // `kind`: RowEncoder::layout(); `sides`: RowEncoder::sides(). `score`: what rows are scored as; then labels
  // are no tokens.
  Survey(const Tokenizer& tokenizer, DataKind kind, int64_t sides = 1, RowScore score = RowScore::none);

  // Adds the row at this offset and its samples: one, several when it is split, or one that is dropped.
  // `texts` and `learned` (those of RowEncoder) are called only when needed, because the texts of a
  // conversation are expensive.
  void add(uint64_t offset, const std::vector<EncodedSample>& samples,
           const std::function<Dataset::Texts()>& texts,
           const std::function<std::vector<std::string>()>& learned);
  // Adds the marks that a row has and that are not used (unused_marks()).
  void add_marks(uint64_t offset, const std::vector<std::string>& marks);
  void merge(const Survey& other) { counts_.merge(other.counts_); }

  // The counts, without malformed rows and duplicates.
  const DataReport& counts() const { return counts_; }

 private:
  void add(const EncodedSample& encoded, const NamedRow& row);
  void add_conversation(const EncodedSample& encoded);
  void add_nothing(const EncodedSample& encoded, const NamedRow& row);
  void add_dropped(const EncodedSample& encoded);
  bool has_unknown(const EncodedSample& encoded) const;
  void add_unspelled(const NamedRow& row, const std::vector<std::string>& learned);
  bool doubles_ends(const EncodedSample& encoded) const;
  void add_unknown(const EncodedSample& encoded, const Dataset::Texts& texts);
  void add_unknown(int64_t tokens, std::string_view text, SideReport& side);
  void find_unknown_characters(std::string_view text, std::set<std::string>& found);
  bool is_unknown(const std::string& character);

  const Tokenizer* tokenizer_;
  Spelling spelling_;
  std::optional<int32_t> begin_;  // the token that the tokenizer adds in front of a text (BOS)
  DataKind kind_;
  int64_t sides_;
  bool labels_are_tokens_;
  DataReport counts_;
  std::map<std::string, bool> is_unknown_;  // the characters looked up so far
};

}  // namespace trainer
