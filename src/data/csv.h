// Tables of separated values: RFC 4180, as Python's csv module reads them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns what separates the names in the first line of a table: the one of comma, semicolon, tab and
// vertical bar that occurs most often outside quotes; `usual` if it occurs as often as any other.
char separator_of(std::string_view text, size_t header, char usual);

// Returns the name of a separator for messages: "semicolon".
const char* separator_name(char separator);

// Returns the end of the record that starts at `at`: the position of its line end, or the size of the text.
// Line ends within quotes belong to their field.
size_t record_end(std::string_view text, size_t at, char separator);

// Returns the fields of one record without their quotes. Throws DataError for a quote that is not closed, and
// for text after a closing quote.
std::vector<std::string> split_record(std::string_view record, char separator);

}  // namespace trainer
