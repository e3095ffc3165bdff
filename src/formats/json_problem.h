// Says what is wrong with text that should be JSON, in words for people.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trainer {

// What ends where the JSON ends: a line of a file, the last line, a text that holds it, or a file that is one
// object.
enum class JsonEnd { line, file, text, whole_file };

struct JsonProblem {
  size_t byte;  // from 0
  std::string what;
};

// Returns the first thing that is not JSON and what to do: a value that only Python writes (NaN, None, single
// quotes), half of a surrogate pair, an escape that does not exist, a line break within a text, an end that
// is missing, text after the end. Nothing if nothing of that kind is found.
std::optional<JsonProblem> find_json_problem(std::string_view json, JsonEnd end);

// The same as text that begins with the column (in bytes, from 1); "" if nothing is found.
std::string json_problem(std::string_view json, JsonEnd end);

}  // namespace trainer
