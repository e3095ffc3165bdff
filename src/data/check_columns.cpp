#include "data/check_columns.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "data/fields.h"
#include "data/unpack.h"

namespace trainer {
namespace {

// Throws for a column that no row can use. A null may be in this row only.
void check_text_column(const RowParser& row, const std::string& column) {
  const auto value = row.json(column);
  if (!value || !value->is_null()) row.text(column);
}

void check_row(const RowParser& row, const RowEncoder& encoder) {
  if (encoder.kind() == DataKind::chat) {
    if (!conversation_form(row.fields())) encoder.read(row);
    return;
  }
  for (const std::string& text : {encoder.input_field(), encoder.target_field()}) {
    if (text.empty()) continue;
    const TextTemplate columns = TextTemplate::parse(text, "");
    for (const std::string& column : columns.fields()) check_text_column(row, column);
  }
}

}  // namespace

std::unique_ptr<RowEncoder> check_columns(const std::vector<std::filesystem::path>& files,
                                          const std::filesystem::path& cache, const UsedColumns& used,
                                          const DataConfig& config, const std::string& model,
                                          const Tokenizer& tokenizer, bool encoder_decoder) {
  std::unique_ptr<RowEncoder> encoder;
  RowParser parser;
  for (const std::filesystem::path& file : files) {
    std::istringstream rows(first_rows_before_unpacking(file, cache, used));
    std::string row;
    for (int64_t number = 1; std::getline(rows, row); number++) {
      try {
        parser.parse(row, 0);
      } catch (const DataError&) {  // is reported with all bad rows
        continue;
      }
      try {
        if (!encoder) encoder = make_row_encoder(config, model, parser, tokenizer, encoder_decoder);
        check_row(parser, *encoder);
      } catch (const DataError& e) {
        throw DataError(concat(file.string(), ":", number, ": ", e.what()));
      }
    }
    if (!encoder) return nullptr;  // other rows decide on the fields
  }
  return encoder;
}

}  // namespace trainer
