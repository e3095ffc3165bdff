// Says what is wrong with text that should be JSON, in words for people.
#pragma once

#include <string>
#include <string_view>

namespace trainer {

// What ends where the JSON ends: a line of a file, the file itself, or a text that holds it.
enum class JsonEnd { line, file, text };

// Returns the first thing that is not JSON, with its column (in bytes, from 1) and what to do: a value that
// only Python writes (NaN, None, single quotes), half of a surrogate pair, an escape that does not exist, a
// line break within a text, an end that is missing, text after the end. "" if nothing of that kind is found.
std::string json_problem(std::string_view json, JsonEnd end);

// Returns what a file is that begins like this, if it is no text: "is compressed (gzip)"; and what to do. ""
// for anything else, among it text in UTF-8. For data files without an ending that tells.
std::string not_text(std::string_view begin);

}  // namespace trainer
