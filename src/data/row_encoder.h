// A RowEncoder turns a row of the data into samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/text/conversation.h"
#include "trainer/text/tokenizer.h"

#include "data/encode.h"
#include "data/row_parser.h"

namespace trainer {

// The checked content of a row. A row is read once; all else is computed from this.
struct ReadRow {
  Dataset::Texts texts = {};                   // rows with input and target, or running text
  std::string fields = {};                     // the values that the texts are made of, with their names
  Conversation conversation = {};              // chat rows
  float weight = 1;                            // in the loss, from data.loss_weight
  std::vector<std::string> unused_marks = {};  // see unused_marks()
  std::vector<ReadRow> sides = {};  // preferences: the row with each of its answers; feedback: its one
  bool desirable = true;            // feedback
};

// Used by several threads at once. The functions throw DataError for a row that cannot be used. The error has
// no position; the caller knows it.
class RowEncoder {
 public:
  virtual ~RowEncoder() = default;

  virtual ReadRow read(const RowParser& row) const = 0;

  // Returns the samples in row order: one, or several when data.long_samples splits the row.
  virtual std::vector<EncodedSample> encode(const ReadRow& row) const = 0;

  // Returns the texts for evaluation by generation and for the report. For chat data: the conversation before
  // the last answer, rendered by the template with the generation prompt, and that answer.
  virtual Dataset::Texts texts(const ReadRow& row) const = 0;
  // Returns the texts that are learned, without what a template adds.
  virtual std::vector<std::string> learned(const ReadRow& row) const = 0;
  // Returns the tokens that the model gets before it generates the target of texts().
  virtual std::vector<int32_t> prompt(const ReadRow& row) const = 0;
  // Returns the token that ends an answer, in addition to the end token of the model.
  virtual std::optional<int32_t> end_of_answer() const { return std::nullopt; }
  virtual bool has_chat_template() const { return false; }

  // Returns the text that makes rows equal: the values that go into the samples, without other fields and
  // without the templates of the configuration. It decides which rows are held out.
  virtual std::string content(const ReadRow& row) const = 0;
  // Returns the question: equal for rows that ask the same, whatever the answer.
  virtual std::string question(const ReadRow& row) const = 0;

  // Returns everything besides row and tokenizer that the samples depend on, as text. An index that was made
  // with other settings is rebuilt.
  virtual std::string settings() const = 0;

  // Returns the day that the samples depend on, "2026-05-31"; "" if they do not depend on the date.
  virtual std::string date() const { return ""; }

  virtual DataKind kind() const = 0;
  // Returns how its samples are laid out: kind(), or for rows with several answers the kind of each.
  virtual DataKind layout() const { return kind(); }
  // Returns the samples that each row gives, if that is fixed: 2 for a chosen and a rejected answer.
  virtual int64_t sides() const { return 1; }
  // For the report: "question -> answer".
  virtual std::string input_field() const = 0;
  virtual std::string target_field() const = 0;  // "": none
};

// Returns the fields of a row that another program takes for what is learned of it, and that are not used:
// "train"; and "loss_mask[]", if there is one mark for each message. None with data.unknown_marks: ignore.
std::vector<std::string> unused_marks(const DataConfig& config, const RowParser& row);

// Returns the encoder for the configuration and, for what that leaves open, for the first row that can be
// parsed. `model`: the directory with the chat template. Throws ConfigError for contradictions, and DataError
// (without the position of the row) when the field names do not identify the kind. The tokenizer must outlive
// the encoder.
std::unique_ptr<RowEncoder> make_row_encoder(const DataConfig& config, const std::string& model,
                                             const RowParser& first_row, const Tokenizer& tokenizer,
                                             bool encoder_decoder);

}  // namespace trainer
