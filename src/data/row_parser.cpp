#include "data/row_parser.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <simdjson.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/csv.h"
#include "formats/json_file.h"
#include "formats/json_problem.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {

std::string with_big_numbers_as_objects(std::string_view json) {
  std::string out;
  size_t at = 0;
  while (const auto number = number_beyond_64_bits(json, at)) {
    const size_t begin = static_cast<size_t>(number->begin() - json.begin());
    out += concat(json.substr(at, begin - at), "{\"\\u0001number\":\"", *number, "\"}");
    at = begin + number->size();
  }
  out += json.substr(at);
  return out;
}

namespace dom = simdjson::dom;
namespace {

std::string invalid_utf8(std::string_view text) {
  for (size_t at = text.find('\xed'); at < text.size(); at = text.find('\xed', at + 1)) {
    if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xa0)
      return "invalid UTF-8: half of a character (a surrogate without its pair), as Python writes it with "
             "errors='surrogatepass'; remove it";
  }
  return "invalid UTF-8; save the file as UTF-8";
}

void refuse_nul(std::string_view row) {
  if (row.find('\0') != std::string_view::npos) throw DataError("holds a NUL byte; the file is damaged");
}

std::string quoted_list(std::vector<std::string> names) {
  constexpr size_t kShown = 12;
  const size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  for (std::string& name : names) name = "\"" + name + "\"";
  return join(names) + (more > 0 ? concat(" and ", more, " more") : "");
}

[[noreturn]] void throw_missing(const std::string& field, const std::vector<std::string>& known) {
  const std::string guess = closest(field, known);
  throw DataError(concat("field \"", field, "\" is missing (the row has ",
                         known.empty() ? "no fields" : quoted_list(known),
                         guess.empty() ? ")" : concat("; did you mean \"", guess, "\"?)")));
}

bool holds_messages(dom::element value) {
  dom::array list;
  if (value.get(list) != simdjson::SUCCESS || list.size() == 0) return false;
  dom::object first;
  return list.at(0).get(first) == simdjson::SUCCESS && first["role"].error() == simdjson::SUCCESS;
}

[[noreturn]] void throw_not_text(const std::string& field, dom::element value, dom::element_type type) {
  const char* problem = "a number, not text; write it as a string, in quotes";
  if (type == dom::element_type::OBJECT) {
    problem = "an object, not text; write it as a string (in Python: json.dumps)";
  } else if (holds_messages(value)) {
    problem =
        "a list of messages, not text; conversations are read from \"messages\", or from \"prompt\" and "
        "\"completion\" where both are such lists (data.kind: chat)";
  } else if (type == dom::element_type::ARRAY) {
    problem = "an array, not text; write it as a string (in Python: json.dumps)";
  } else if (type == dom::element_type::NULL_VALUE) {
    problem = "null, not text; give it a text (\"\" for none) or remove the row";
  } else if (type == dom::element_type::BOOL) {
    problem = "true or false, not text; write it as a string, in quotes";
  }
  throw DataError(concat("field \"", field, "\" is ", problem));
}

// `ends_file`: nothing comes after the row.
[[noreturn]] void throw_malformed(std::string_view row, simdjson::error_code error, bool ends_file) {
  if (error == simdjson::DEPTH_ERROR)
    throw DataError("malformed JSON: lists and objects are nested deeper than 1,024 levels");
  const std::string problem =
      row.starts_with('{') ? json_problem(row, ends_file ? JsonEnd::file : JsonEnd::line) : "";
  if (!problem.empty()) throw DataError(concat("malformed JSON: ", problem));
  throw DataError("malformed JSON: each line must be one JSON object, or the file one array of objects");
}

using Json = nlohmann::ordered_json;

// Returns the digits of a big number; nullopt when the element is not one.
std::optional<std::string_view> big_number(dom::element element) {
  dom::object object;
  std::string_view literal;
  if (element.get(object) != simdjson::SUCCESS || object[kBigNumber].get(literal) != simdjson::SUCCESS)
    return std::nullopt;
  return literal;
}

// Where a value stands in its row, as "messages[0].id"; written down only for an error.
struct Place {
  const Place* in = nullptr;
  std::string_view key;  // of an object; otherwise the item `index` of a list
  size_t index = 0;

  std::string text() const {
    if (in == nullptr) return std::string(key);
    return key.data() != nullptr ? concat(in->text(), ".", key) : concat(in->text(), "[", index, "]");
  }
};

// When a key occurs twice, the last one counts.
Json to_json(dom::element element, const Place& place) {
  if (const auto number = big_number(element))
    throw DataError(
        concat("field \"", one_line(place.text(), 200), "\" holds the number ", one_line(*number, 40),
               ", which does not fit in 64 bits; write a smaller one, or this as a string, in quotes"));
  switch (element.type()) {
    case dom::element_type::ARRAY: {
      Json list = Json::array();
      for (const dom::element item : dom::array(element))
        list.push_back(to_json(item, {&place, {}, list.size()}));
      return list;
    }
    case dom::element_type::OBJECT: {
      OrderedObject object;
      for (const dom::key_value_pair field : dom::object(element))
        object.set(std::string(field.key), to_json(field.value, {&place, field.key}));
      return object.take();
    }
    case dom::element_type::INT64:
      return int64_t(element);
    case dom::element_type::UINT64:
      return uint64_t(element);
    case dom::element_type::DOUBLE:
      return double(element);
    case dom::element_type::STRING:
      return std::string_view(element);
    case dom::element_type::BOOL:
      return bool(element);
    case dom::element_type::NULL_VALUE:
      break;
  }
  return nullptr;
}

}  // namespace

struct RowParser::State {
  dom::parser parser;
  dom::element row;
  dom::object object;                                 // the same
  const std::vector<std::string>* columns = nullptr;  // a table's; nullptr: the row is JSON
  std::vector<std::string> record;

  // Returns the text in a column, or nullptr.
  const std::string* cell(const std::string& column) const {
    const auto found = std::ranges::find(*columns, column);
    return found == columns->end() ? nullptr : &record[static_cast<size_t>(found - columns->begin())];
  }
  std::optional<dom::element> find(const std::string& field) const {
    std::optional<dom::element> value;
    for (const dom::key_value_pair pair : object) {
      if (pair.key == field) value = pair.value;
    }
    return value ? value : find_inside(field);
  }

 private:
  // Follows a name with dots into objects and lists.
  std::optional<dom::element> find_inside(std::string_view path) const {
    dom::element at = row;
    while (!path.empty()) {
      const size_t dot = std::min(path.find('.'), path.size());
      const std::string_view name = path.substr(0, dot);
      path.remove_prefix(std::min(dot + 1, path.size()));
      size_t index = 0;
      const bool is_index =
          std::from_chars(name.data(), name.data() + name.size(), index).ptr == name.data() + name.size();
      const bool found = at.is_object()              ? at[name].get(at) == simdjson::SUCCESS
                         : at.is_array() && is_index ? at.get_array().at(index).get(at) == simdjson::SUCCESS
                                                     : false;
      if (!found) return std::nullopt;
    }
    return at;
  }
};

RowParser::RowParser() : state_(std::make_unique<State>()) {}
RowParser::~RowParser() = default;

void RowParser::parse(std::string_view row, size_t readable_after) {
  state_->columns = nullptr;
  const bool copy = readable_after < simdjson::SIMDJSON_PADDING;
  simdjson::error_code error = state_->parser.parse(row.data(), row.size(), copy).get(state_->row);
  if (error == simdjson::NUMBER_ERROR)
    error = state_->parser.parse(with_big_numbers_as_objects(row)).get(state_->row);
  if (error == simdjson::UTF8_ERROR) throw DataError(invalid_utf8(row));
  if (error != simdjson::SUCCESS) refuse_nul(row);
  if (error == simdjson::MEMALLOC) throw DataError("out of memory while parsing this row");
  if (error != simdjson::SUCCESS) throw_malformed(row, error, readable_after == 0);
  if (state_->row.get(state_->object) != simdjson::SUCCESS) {
    throw DataError("is not a JSON object like {\"input\": \"...\", \"target\": \"...\"}");
  }
}

void RowParser::parse_record(std::string_view record, char separator,
                             const std::vector<std::string>& columns) {
  if (!simdjson::validate_utf8(record)) throw DataError(invalid_utf8(record));
  refuse_nul(record);
  state_->record = split_record(record, separator);
  state_->columns = &columns;
  if (state_->record.size() != columns.size())
    throw DataError(concat("has ", state_->record.size(), " fields, and the header names ", columns.size()));
}

std::vector<std::string> RowParser::fields() const {
  if (state_->columns != nullptr) return *state_->columns;
  std::vector<std::string> names;
  for (const dom::key_value_pair field : state_->object) names.emplace_back(field.key);
  return names;
}

std::vector<std::string> RowParser::fields_that(bool (*are)(std::string_view)) const {
  std::vector<std::string> names;
  if (is_record()) {
    std::ranges::copy_if(*state_->columns, std::back_inserter(names), are);
    return names;
  }
  for (const dom::key_value_pair field : state_->object) {
    if (are(field.key)) names.emplace_back(field.key);
  }
  return names;
}

bool RowParser::is_record() const { return state_->columns != nullptr; }

std::string_view RowParser::text(const std::string& field) const {
  if (state_->columns != nullptr) {
    const std::string* cell = state_->cell(field);
    if (cell == nullptr) throw_missing(field, fields());
    return *cell;
  }
  const std::optional<dom::element> value = state_->find(field);
  if (!value) throw_missing(field, fields());
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS)
    throw_not_text(field, *value, big_number(*value) ? dom::element_type::DOUBLE : value->type());
  return text;
}

std::string RowParser::written(const std::string& field) const {
  const auto value = state_->columns != nullptr ? std::nullopt : state_->find(field);
  if (value && (value->is_number() || value->is_bool())) return simdjson::minify(*value);
  return std::string(text(field));
}

std::optional<Json> RowParser::json(const std::string& field) const {
  if (state_->columns != nullptr) {
    const std::string* cell = state_->cell(field);
    return cell != nullptr ? std::optional<Json>(*cell) : std::nullopt;
  }
  const std::optional<dom::element> value = state_->find(field);
  return value ? std::optional(to_json(*value, {nullptr, field})) : std::nullopt;
}

Json RowParser::json() const {
  OrderedObject row;
  if (state_->columns == nullptr) {
    for (const dom::key_value_pair field : state_->object) {
      if (!big_number(field.value))
        row.set(std::string(field.key), to_json(field.value, {nullptr, field.key}));
    }
  } else {
    for (size_t i = 0; i < state_->record.size(); i++) row.set((*state_->columns)[i], state_->record[i]);
  }
  return row.take();
}

}  // namespace trainer
