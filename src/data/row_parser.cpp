#include "data/row_parser.h"

#include <algorithm>
#include <optional>
#include <simdjson.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace dom = simdjson::dom;
namespace {

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

[[noreturn]] void throw_not_text(const std::string& field, dom::element_type type) {
  const char* problem = "a number, not text; write it as a string, in quotes";
  if (type == dom::element_type::OBJECT) {
    problem = "an object, not text; write it as a string (in Python: json.dumps)";
  } else if (type == dom::element_type::ARRAY) {
    problem = "an array, not text; write it as a string (in Python: json.dumps)";
  } else if (type == dom::element_type::NULL_VALUE) {
    problem = "null, not text; give it a text (\"\" for none) or remove the row";
  } else if (type == dom::element_type::BOOL) {
    problem = "true or false, not text; write it as a string, in quotes";
  }
  throw DataError(concat("field \"", field, "\" is ", problem));
}

using Json = nlohmann::ordered_json;

// Where a key is there twice the last one counts.
Json to_json(dom::element element) {
  switch (element.type()) {
    case dom::element_type::ARRAY: {
      Json list = Json::array();
      for (const dom::element item : dom::array(element)) list.push_back(to_json(item));
      return list;
    }
    case dom::element_type::OBJECT: {
      Json object = Json::object();
      for (const dom::key_value_pair field : dom::object(element))
        object[std::string(field.key)] = to_json(field.value);
      return object;
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
  dom::object object;  // the same

  std::optional<dom::element> find(const std::string& field) const {
    std::optional<dom::element> value;
    for (const dom::key_value_pair pair : object) {
      if (pair.key == field) value = pair.value;
    }
    return value;
  }
};

RowParser::RowParser() : state_(std::make_unique<State>()) {}
RowParser::~RowParser() = default;

void RowParser::parse(std::string_view row, size_t readable_after) {
  const bool copy = readable_after < simdjson::SIMDJSON_PADDING;
  const simdjson::error_code error = state_->parser.parse(row.data(), row.size(), copy).get(state_->row);
  if (error == simdjson::UTF8_ERROR) throw DataError("invalid UTF-8; save the file as UTF-8");
  if (error == simdjson::MEMALLOC) throw DataError("no memory to parse this row");
  if (error != simdjson::SUCCESS) {
    throw DataError(concat("malformed JSON (", simdjson::error_message(error),
                           "); each line must be one JSON object, or the file one array of objects"));
  }
  if (state_->row.get(state_->object) != simdjson::SUCCESS) {
    throw DataError("is not a JSON object like {\"input\": \"...\", \"target\": \"...\"}");
  }
}

std::vector<std::string> RowParser::fields() const {
  std::vector<std::string> names;
  for (const dom::key_value_pair field : state_->object) names.emplace_back(field.key);
  return names;
}

std::string_view RowParser::text(const std::string& field) const {
  const std::optional<dom::element> value = state_->find(field);
  if (!value) throw_missing(field, fields());
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) throw_not_text(field, value->type());
  return text;
}

std::optional<Json> RowParser::json(const std::string& field) const {
  const std::optional<dom::element> value = state_->find(field);
  return value ? std::optional(to_json(*value)) : std::nullopt;
}

Json RowParser::json() const { return to_json(state_->row); }

}  // namespace trainer
