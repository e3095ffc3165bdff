// A file with what a teacher has said of rows (docs/distillation.md), open and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/formats/safetensors.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

inline constexpr float kNoToken = -std::numeric_limits<float>::infinity();  // its log-probability

// Returns the file's metadata of this name; "": there is none.
std::string said_in(const SafetensorsFile& file, const char* name);
// Returns LogitsFacts::made_of; nullopt for a file of another program.
std::optional<std::map<std::string, std::string>> made_of_file(const SafetensorsFile& file);
std::string checksum_of_tensors(const std::map<std::string, TensorView>& tensors);

class LogitsFile {
 public:
  // Throws DataError, which names the file, as all of its functions do: here if it is damaged, or does not
  // have the tensors that it must have.
  explicit LogitsFile(const std::filesystem::path& path);

  // Throws if its ids are not those of the tokenizer. `known`: the checksums of the tokenizer's first tokens,
  // by their number, which are kept there.
  void check_vocabulary(const Tokenizer& tokenizer, std::map<int64_t, std::string>& known) const;
  // Throws if its values are not those that were written; of another program's file, which has no checksum,
  // if they make no sense for a model of so many tokens. `is_intact`: the checksum was compared before.
  void check_values(int64_t vocab, bool is_intact) const;

  int64_t top() const { return top_; }
  int64_t rows() const { return rows_; }
  bool has_tokens() const;
  std::vector<int32_t> tokens(int64_t row) const { return part("tokens", "token_starts", row); }
  std::vector<int32_t> labels(int64_t row) const { return part("labels", "label_starts", row); }
  // Returns where the labels of a row begin and end.
  std::pair<int64_t, int64_t> labels_of(int64_t row) const { return range("label_starts", row); }
  // Returns what is said of a label: the i-th of top() tokens.
  int32_t id(int64_t label, int64_t i) const;
  float log_prob(int64_t label, int64_t i) const;
  std::optional<std::map<std::string, std::string>> made_of() const { return made_of_file(file_); }

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse_token(int64_t id, int64_t row, int64_t vocab) const;
  const TensorView& at(const char* name) const { return file_.tensors.at(name); }
  std::pair<int64_t, int64_t> range(const char* starts, int64_t row) const;
  std::vector<int32_t> part(const char* name, const char* starts, int64_t row) const;
  void check_shapes();
  int64_t check_starts(const char* name, int64_t end) const;
  void check_ids(const char* name, const char* starts, int64_t vocab) const;
  void check_teacher(int64_t vocab) const;

  std::string path_;
  SafetensorsFile file_;
  int64_t top_ = 0, rows_ = 0, labels_ = 0;
};

}  // namespace trainer
