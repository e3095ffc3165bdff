#include "data/row_encoder.h"

#include "trainer/base/error.h"

#include "data/chat_encoder.h"
#include "data/text_encoder.h"

namespace trainer {

std::unique_ptr<RowEncoder> make_row_encoder(const DataConfig& config, const std::string& model,
                                             const RowParser& first_row, const Tokenizer& tokenizer,
                                             bool encoder_decoder) {
  const std::vector<std::string> fields = first_row.fields();
  return in_family(ErrorCode::data_fields, [&]() -> std::unique_ptr<RowEncoder> {
    if (auto chat = make_chat_encoder(config, model, fields, tokenizer, encoder_decoder)) return chat;
    return std::make_unique<TextEncoder>(choose_fields(config, fields, encoder_decoder), config, tokenizer);
  });
}

}  // namespace trainer
