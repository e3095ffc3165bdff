// What a teacher has said of rows: of each token that counts in the loss its likeliest tokens, in safetensors
// files (docs/distillation.md says what is in them).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/formats/safetensors.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// Returns a checksum of the texts of the first `size` ids. Two tokenizers with the same one give the ids the
// same meaning.
std::string vocabulary_checksum(const Tokenizer& tokenizer, int64_t size);

// The labels of a sample that count in the loss.
std::vector<int32_t> learned_labels(const Sample& sample, bool encoder_decoder);

// Rows to be written, one after the other.
struct LogitsOfRows {
  int64_t top = 0;
  std::vector<int32_t> tokens = {}, labels = {}, ids = {};
  std::vector<int64_t> token_starts{0}, label_starts{0};
  std::vector<float> log_probs = {};

  // `teacher` has as many entries as the sample has labels that count, each of `top`.
  void add(const Sample& sample, const TeacherTokens& teacher, bool encoder_decoder);
};

// What a file depends on, by name; and the vocabulary of its ids.
struct LogitsFacts {
  std::map<std::string, std::string> made_of;
  std::string vocabulary;
  int64_t vocabulary_size = 0;

  static LogitsFacts of(const Tokenizer& tokenizer, std::map<std::string, std::string> made_of);
};

// Throws FormatError if the file cannot be written.
void write_logits(const std::filesystem::path& path, const LogitsOfRows& rows, const LogitsFacts& facts);

// Returns why a file is not what a pass with these facts writes: "" if it is that and not damaged.
std::string why_logits_do_not_fit(const std::filesystem::path& path, const LogitsFacts& facts);

class LogitsFile;

// What files are opened for.
struct LogitsUse {
  int64_t vocab = 0;                                 // tokens that the model has; 0: those of the tokenizer
  std::map<std::string, std::string> settings = {};  // of the rows, as in LogitsFacts::made_of
  std::set<std::filesystem::path> intact = {};       // files that were found to be whole
};

// Files that are open. Safe to read from several threads.
class StoredLogits {
 public:
  // `path`: a file, or a folder of them. Throws DataError, which names the file, if one of them is damaged,
  // is of another vocabulary than the tokenizer's, or does not have what it must have.
  static std::shared_ptr<const StoredLogits> open(const std::filesystem::path& path,
                                                  const Tokenizer& tokenizer, const LogitsUse& use = {});

  // Returns what is stored of a sample: of the row with its tokens, or where the files have no tokens of the
  // row with its number. nullopt: there is none.
  std::optional<TeacherTokens> of(const Sample& sample, int64_t number, bool encoder_decoder) const;

  int64_t rows() const { return std::ssize(places_); }
  int64_t top() const { return top_; }  // the most tokens of a label
  const std::string& name() const { return name_; }
  // Settings of rows that were others when the files were made: "data.max_length: 512 there, 256 here".
  const std::vector<std::string>& other_settings() const { return other_settings_; }

 private:
  struct Place {
    size_t file;
    int64_t row;
  };
  void add(const std::filesystem::path& path, const Tokenizer& tokenizer, const LogitsUse& use);

  std::string name_;
  std::map<int64_t, std::string> vocabularies_;
  int64_t top_ = 0, vocab_ = 0;
  bool by_number_ = false;
  std::vector<std::string> other_settings_;
  std::vector<std::shared_ptr<const LogitsFile>> files_;
  std::vector<Place> places_;                       // by number
  std::unordered_map<uint64_t, size_t> by_tokens_;  // indices of places_
};

}  // namespace trainer
