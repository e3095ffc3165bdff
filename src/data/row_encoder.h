// What a row of the data is to the model: its samples.
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

// What is in a row, checked; read once, whatever is then asked of it.
struct ReadRow {
  Dataset::Texts texts = {};       // of rows of an input and a target, or of running text
  std::string fields = {};         // the values that these are made of, with their names
  Conversation conversation = {};  // of rows of conversations
};

// Used by several threads at once. The functions throw DataError for a row that cannot be used, without its
// place, which the caller knows.
class RowEncoder {
 public:
  virtual ~RowEncoder() = default;

  virtual ReadRow read(const RowParser& row) const = 0;

  // In the order of the row: one, or several where data.long_samples splits it.
  virtual std::vector<EncodedSample> encode(const ReadRow& row) const = 0;

  // For evaluation by generation, and for the report. Of chat data, the conversation before the last answer
  // as the template writes it with the generation prompt, and that answer.
  virtual Dataset::Texts texts(const ReadRow& row) const = 0;
  // What the model sees when it is to give the target of texts().
  virtual std::vector<int32_t> prompt(const ReadRow& row) const = 0;
  // What ends such an answer beside the model's own end token.
  virtual std::optional<int32_t> end_of_answer() const { return std::nullopt; }

  // What makes rows the same: the values that go into the samples, whatever else is in the row and however
  // templates in the configuration put them together. Decides which rows are held out.
  virtual std::string content(const ReadRow& row) const = 0;
  // What rows have in common that ask for the same, whatever the answer.
  virtual std::string question(const ReadRow& row) const = 0;

  // All that the samples depend on beside the row and the tokenizer, as text: rows that were seen with other
  // settings are looked at anew.
  virtual std::string settings() const = 0;

  virtual DataKind kind() const = 0;
  // For the report: "question -> answer".
  virtual std::string input_field() const = 0;
  virtual std::string target_field() const = 0;  // "": none
};

// By the configuration and, for what it leaves open, the first row that can be parsed. `model`: the directory
// that has the chat template. Throws ConfigError for contradictions and DataError (without the place of the
// row) where the names of its fields say nothing. The tokenizer must outlive it.
std::unique_ptr<RowEncoder> make_row_encoder(const DataConfig& config, const std::string& model,
                                             const RowParser& first_row, const Tokenizer& tokenizer,
                                             bool encoder_decoder);

}  // namespace trainer
