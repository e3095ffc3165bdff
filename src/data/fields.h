// Chooses which fields of a row are the input and the target.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"

#include "data/row_parser.h"

namespace trainer {

// The text that a row gives: the value of a field ("question"), or a template with fields in it ("Translate:
// {de}"; {{ and }} are literal braces).
class TextTemplate {
 public:
  // `key`: the configuration key that `text` comes from, for messages. Throws ConfigError for unbalanced
  // braces and for a template without a field.
  static TextTemplate parse(const std::string& text, std::string_view key);

  // Throws DataError as RowParser::text does. Inside of { and }, numbers, true and false are text.
  std::string apply(const RowParser& row) const;
  // Returns the text of one of the fields.
  std::string text_of(const RowParser& row, const std::string& field) const {
    return is_name_ ? std::string(row.text(field)) : row.written(field);
  }

  // Returns the fields of the template in order.
  const std::vector<std::string>& fields() const { return fields_; }

 private:
  struct Piece {
    std::string literal, field;  // one of the two is empty
  };
  std::vector<Piece> pieces_;
  std::vector<std::string> fields_;
  bool is_name_ = false;  // without { and }
};

// Names of an input and its target that data sets use.
struct KnownPair {
  const char *input, *target;
};
// In the order in which they are looked for.
std::span<const KnownPair> known_pairs();

struct Fields {
  DataKind kind;              // seq2seq on an encoder-decoder, completion or text on a decoder
  std::string input, target;  // as configured or found; target empty for text
};

// Returns the weight of a row in the loss: the number in this field, which may be the text of one; 1 for an
// empty name. Throws DataError for a field that is missing or anything else.
float weight_of_row(const RowParser& row, const std::string& field);
// Returns the part of a row's content, which makes rows equal, that the weight adds: nothing for 1.
std::string weight_as_content(float weight);

// Returns the fields from the configuration and, for what it leaves out, from the field names of the first
// row. On an encoder-decoder, prompt/completion data are source/target, and the other way round. Throws
// ConfigError for contradictions, and DataError (without the position of the row) when the names do not
// identify the fields.
Fields choose_fields(const DataConfig& config, const std::vector<std::string>& names, bool encoder_decoder);

}  // namespace trainer
