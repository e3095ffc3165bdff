// The columns of data that nobody has described yet, and what of them is probably read and learned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

struct Column {
  std::string name;        // "question", or "translation.de" for a text inside of an object
  std::string type;        // "text", "number", "true or false", "messages", "list", "object", "empty"
  std::string example;     // the first value that is not empty, shortened, on one line
  int64_t filled = 0;      // rows that have a value
  int64_t characters = 0;  // of all texts
  bool numbers = true;     // a text that is a number in every row

  bool is_text() const { return type == "text"; }
  // Returns whether data.input or data.target can name it, if need be in { and }.
  bool is_readable() const { return is_text() || type == "number" || type == "true or false"; }
};

struct Columns {
  std::vector<Column> all;  // in the order in which they were seen
  int64_t rows = 0;         // that were looked at

  // Returns the column of this name; nullptr if there is none.
  const Column* find(const std::string& name) const;
  std::vector<std::string> names() const;
  // Returns a line for each column: its name, type and example.
  std::vector<std::string> lines() const;
};

// Looks at the first rows of the files, those of Parquet files without unpacking them. Rows that cannot be
// parsed are passed over. Throws DataError as Dataset::open() does for files that cannot be read, and if no
// row can be parsed.
Columns look_at_columns(const std::vector<DataSource>& sources, const std::string& cache);

// A choice of data.kind, data.input and data.target.
struct FieldChoice {
  DataKind kind = DataKind::automatic;
  std::string input, target;  // empty for conversations; no target for running text
  std::string reason;
  bool sure = true;  // otherwise a person should look at it
};

// Completes what is `given` from the names and types of the columns. Throws ConfigError for a column that
// does not exist, and DataError when there is nothing that could be read; both say what there is.
FieldChoice choose_columns(const Columns& columns, const FieldChoice& given, bool encoder_decoder);

// Throws ConfigError, with the columns that there are, if a field or template names another. `option`: what
// says so, for the message.
void check_template(const Columns& columns, const std::string& text, const std::string& option);

}  // namespace trainer
