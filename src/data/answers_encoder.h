// Turns rows of preferences and of feedback into samples: one for each answer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/answers_rows.h"
#include "data/chat_encoder.h"
#include "data/row_encoder.h"

namespace trainer {

// Each answer is encoded like a row of its own, as text or as a conversation, so that all begin with the same
// tokens. A row of preferences is truncated as a whole, or left out: what truncation takes from the beginning
// is the same for both sides, and both keep something to learn.
class AnswersEncoder : public RowEncoder {
 public:
  // `one`: encodes the row with one of its answers; for a decoder, without a limit of its length. `chat`: the
  // same, if the answers are in conversations.
  AnswersEncoder(DataKind kind, std::unique_ptr<RowEncoder> one, const ChatEncoder* chat,
                 const DataConfig& config, const Tokenizer& tokenizer, bool encoder_decoder);

  ReadRow read(const RowParser& row) const override;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  // Of the chosen answer.
  Dataset::Texts texts(const ReadRow& row) const override { return one_->texts(row.sides.front()); }
  std::vector<std::string> learned(const ReadRow& row) const override;
  std::vector<int32_t> prompt(const ReadRow& row) const override;
  std::string content(const ReadRow& row) const override;
  std::string question(const ReadRow& row) const override { return one_->question(row.sides.front()); }
  std::string settings() const override;
  std::optional<int32_t> end_of_answer() const override { return one_->end_of_answer(); }
  bool has_chat_template() const override { return one_->has_chat_template(); }
  std::string date() const override { return one_->date(); }
  DataKind kind() const override { return kind_; }
  DataKind layout() const override { return one_->kind(); }
  int64_t sides() const override { return kind_ == DataKind::preference ? 2 : 1; }
  std::string input_field() const override { return "prompt"; }
  std::string target_field() const override;

 private:
  void truncate(std::vector<EncodedSample>& sides) const;
  std::vector<EncodedSample> encode_to_score(const ReadRow& row) const;
  bool teaches(const EncodedSample& side) const;

  DataKind kind_;
  std::unique_ptr<RowEncoder> one_;
  const ChatEncoder* chat_;
  DataConfig config_;
  const Tokenizer& tokenizer_;
  bool encoder_decoder_;
};

// Returns the encoder for data.kind: preference or feedback. Throws as make_row_encoder() does.
std::unique_ptr<RowEncoder> make_answers_encoder(const DataConfig& config, const std::string& model,
                                                 const RowParser& first_row, const Tokenizer& tokenizer,
                                                 bool encoder_decoder);

}  // namespace trainer
