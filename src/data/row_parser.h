// One row, JSON or a record of a table -> its fields.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace trainer {

// Keeps its buffers from row to row; one for each thread. Its errors are DataError that say what is wrong
// with the row; the caller knows where the row is.
class RowParser {
 public:
  RowParser();
  ~RowParser();

  // Throws for malformed JSON, invalid UTF-8, NUL bytes, and what is not an object. `readable_after`: bytes
  // that may be read beyond the row; with enough of them the row is not copied.
  void parse(std::string_view row, size_t readable_after);
  // A record of a table with these columns, which outlive the row. Throws for another number of fields, too.
  void parse_record(std::string_view record, char separator, const std::vector<std::string>& columns);

  // Of the row last parsed:
  std::vector<std::string> fields() const;
  // Throws when the field is missing or its value is no string. Where a key is there twice the last one
  // counts, as in Python. The view is good until the next row.
  std::string_view text(const std::string& field) const;
  // The value of a field, whatever it is; nullopt when it is missing. Of a row of a table, its text.
  std::optional<nlohmann::ordered_json> json(const std::string& field) const;
  // The whole row, without fields that are a number beyond 64 bits. Throws where one stands deeper.
  nlohmann::ordered_json json() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
