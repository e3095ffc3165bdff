// Turns rows with a text, or a conversation, and a label into samples: of each text, one label is learned.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "data/chat_encoder.h"
#include "data/fields.h"
#include "data/row_encoder.h"
#include "data/row_file.h"

namespace trainer {

// The label of a sample that is scored as a whole. A decoder's is one place behind its tokens: the last one
// predicts it. An encoder-decoder's decoder reads the text, too (CollateOptions::targets_are_sources), and
// predicts it at the last token. A number is kept as the bits of an fp32 value.
void set_label(Sample& sample, int32_t label, bool encoder_decoder);
int32_t label_of_number(float number);

// Returns the text's ids, truncated, with a label of 0 that is to be replaced. Padding at the end of the text
// is left out, because Transformers looks for the last token that is none. Throws DataError if nothing is
// left.
EncodedSample encode_scored(std::vector<int32_t> ids, const DataConfig& config, const Tokenizer& tokenizer,
                            bool encoder_decoder);

struct RowChoice;  // build_index.h

// What the labels of rows are, from a pass over all of them.
struct LabelCounts {
  std::vector<std::pair<std::string, int64_t>> classes;  // in the order of the head's outputs
  int64_t rows = 0;
  bool all_equal = true;
  std::string first;
};

class LabelEncoder : public RowEncoder {
 public:
  // `chat`: encodes the conversations; nullptr: rows have a text.
  LabelEncoder(const Fields& fields, std::unique_ptr<ChatEncoder> chat, const DataConfig& config,
               const Tokenizer& tokenizer, bool encoder_decoder);

  ReadRow read(const RowParser& row) const override;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  Dataset::Texts texts(const ReadRow& row) const override { return row.texts; }
  std::vector<std::string> learned(const ReadRow&) const override { return {}; }
  std::vector<int32_t> prompt(const ReadRow& row) const override;
  std::string content(const ReadRow& row) const override;
  std::string question(const ReadRow& row) const override;
  std::string settings() const override;
  std::string date() const override { return chat_ ? chat_->date() : ""; }
  bool has_chat_template() const override { return chat_ != nullptr; }
  DataKind kind() const override { return DataKind::classification; }
  DataKind layout() const override { return encoder_decoder_ ? DataKind::seq2seq : DataKind::completion; }
  std::string input_field() const override { return fields_.input; }
  std::string target_field() const override { return fields_.target; }

  // Reads the labels of all rows of the files; of those that cannot be used, only build_index() tells. If the
  // classes are not known, they become those that are found. What is counted is of the choice.
  LabelCounts settle(const std::vector<RowFile>& files, const RowChoice& choice, int64_t num_workers);
  // Returns the label of a row, or a tag for each word. Throws DataError.
  std::vector<std::string> labels_of(const RowParser& row) const;
  const RowLabels& labels() const { return config_.labels; }
  void set_weights(std::vector<double> weights) { config_.labels.weights = std::move(weights); }

 private:
  std::optional<std::string> label_text(const RowParser& row) const;
  std::string label_in(const nlohmann::ordered_json& value) const;
  ReadRow read_words(const RowParser& row) const;
  std::vector<EncodedSample> encode_words(const ReadRow& row) const;
  void weigh_classes(Sample& sample) const;
  void refuse_unknown(const std::string& label) const;
  std::vector<int32_t> ids_of(const ReadRow& row) const;

  Fields fields_;
  std::unique_ptr<ChatEncoder> chat_;
  DataConfig config_;
  const Tokenizer& tokenizer_;
  bool encoder_decoder_;
  std::optional<TextTemplate> input_;
};

// Returns the encoder for data.kind: classification. Throws as make_row_encoder() does.
std::unique_ptr<LabelEncoder> make_label_encoder(const DataConfig& config, const std::string& model,
                                                 const RowParser& first_row, const Tokenizer& tokenizer,
                                                 bool encoder_decoder);

}  // namespace trainer
