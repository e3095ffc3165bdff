// Parses one row, JSON or a record of a table, into its fields.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace trainer {

// Reuses its buffers from row to row; use one per thread. Its errors are DataErrors that say what is wrong
// with the row; the caller knows where the row is.
class RowParser {
 public:
  RowParser();
  ~RowParser();

  // Throws for malformed JSON, invalid UTF-8, NUL bytes, and anything but an object. `readable_after`: bytes
  // that may be read after the end of the row; with enough of them the row is not copied.
  void parse(std::string_view row, size_t readable_after);
  // Parses a record of a table with these columns, which must outlive the row. Also throws when the number of
  // fields differs.
  void parse_record(std::string_view record, char separator, const std::vector<std::string>& columns);

  // About the row that was parsed last:
  std::vector<std::string> fields() const;
  // Returns the names of those fields for which this is true.
  std::vector<std::string> fields_that(bool (*are)(std::string_view)) const;
  bool is_record() const;  // of a table, where all values are texts
  // Returns the text of a field. Throws when the field is missing or not a string. When a key occurs twice
  // the last one counts, as in Python. A name that is no field, "translation.de" or "answers.text.0", leads
  // into objects and lists. The view is valid until the next row.
  std::string_view text(const std::string& field) const;
  // The same; also writes numbers, true and false as JSON does.
  std::string written(const std::string& field) const;
  // Returns the value of a field of any type; nullopt when it is missing. In a table, the value is text.
  std::optional<nlohmann::ordered_json> json(const std::string& field) const;
  // Returns the whole row, without fields that are numbers beyond 64 bits. Throws when such a number is
  // nested deeper.
  nlohmann::ordered_json json() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Numbers in JSON that do not fit in 64 bits. They are valid, but simdjson rejects a row that contains one.

// The only key of the object that replaces such a number; its value is the literal.
inline constexpr std::string_view kBigNumber = "\x01number";

// Returns the row with each such number replaced by that object. Anything that is not a valid JSON number is
// unchanged.
std::string with_big_numbers_as_objects(std::string_view json);

}  // namespace trainer
