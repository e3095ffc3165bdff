// Turns conversations into samples.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/text/conversation.h"

#include "data/row_encoder.h"

namespace trainer {

// A decoder gets the conversation as rendered by its chat template. It learns the answers that data.loss_on
// and the weights of the messages choose, each with its end token (tokenize_chat()). Special tokens come from
// the template: none are added, so BOS and EOS occur once. An encoder-decoder gets the conversation before
// the last answer as the source and the answer as the target; Alpaca rows need no template there.
class ChatEncoder : public RowEncoder {
 public:
  // `chat_template`: nullopt only for Alpaca rows on an encoder-decoder.
  ChatEncoder(ConversationForm form, std::optional<ChatTemplate> chat_template, const DataConfig& config,
              const Tokenizer& tokenizer, bool encoder_decoder);

  ReadRow read(const RowParser& row) const override;
  // Throws DataError for marks and roles that are not known, and for what needs a template that is not there.
  void check(const Conversation& conversation, ConversationForm form) const;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  Dataset::Texts texts(const ReadRow& row) const override;
  std::vector<std::string> learned(const ReadRow& row) const override;
  std::string content(const ReadRow& row) const override;
  std::string question(const ReadRow& row) const override;
  std::string settings() const override;
  std::vector<int32_t> prompt(const ReadRow& row) const override;
  std::optional<int32_t> end_of_answer() const override;
  std::string date() const override;
  bool has_chat_template() const override { return template_.has_value(); }
  DataKind kind() const override { return encoder_decoder_ ? DataKind::seq2seq : DataKind::chat; }
  std::string input_field() const override;
  std::string target_field() const override { return ""; }

 private:
  void weigh_target(const Conversation& conversation, const std::string& target,
                    EncodedSample& encoded) const;

  ConversationForm form_;  // the first row's
  std::optional<ChatTemplate> template_;
  DataConfig config_;
  const Tokenizer& tokenizer_;
  bool encoder_decoder_;
};

// Returns the row as JSON; in a table, lists of messages are parsed. Throws as with_parsed_lists().
nlohmann::ordered_json conversation_row(const RowParser& row);

// Returns an encoder when the configuration or the fields of the first row say that rows are conversations;
// otherwise nullptr. `model`: the directory with the chat template, unless data.chat_template names a file.
// Throws ConfigError and DataError as make_row_encoder() does, and FormatError for a template that is missing
// or invalid.
std::unique_ptr<RowEncoder> make_chat_encoder(const DataConfig& config, const std::string& model,
                                              const RowParser& first_row, const Tokenizer& tokenizer,
                                              bool encoder_decoder);
// The same for conversations of this form.
std::unique_ptr<ChatEncoder> chat_encoder_of(ConversationForm form, const DataConfig& config,
                                             const std::string& model, const Tokenizer& tokenizer,
                                             bool encoder_decoder);

// Returns the directory whose chat template writes a run's samples: that of the model, or of an adapter that
// is trained further and has learned one.
std::string chat_template_directory(const Config& config);

}  // namespace trainer
