#include "data/row_encoder.h"

#include "data/text_encoder.h"

namespace trainer {

std::unique_ptr<RowEncoder> make_row_encoder(const DataConfig& config, const RowParser& first_row,
                                             const Tokenizer& tokenizer, bool encoder_decoder) {
  return std::make_unique<TextEncoder>(choose_fields(config, first_row.fields(), encoder_decoder), config,
                                       tokenizer);
}

}  // namespace trainer
