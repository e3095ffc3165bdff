#include "formats/json_file.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/not_text.h"
#include "formats/json_problem.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFew = 16;  // up to so many keys, comparing is faster than hashing

// Receives the events of nlohmann's parser.
class Builder {
 public:
  Json take() { return std::move(done_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }
  bool start_object(size_t) {
    open_.emplace_back();
    return true;
  }
  bool start_array(size_t) {
    open_.emplace_back().is_array = true;
    return true;
  }
  bool end_object() { return close(open_.back().object.take()); }
  bool end_array() { return close(std::move(open_.back().array)); }
  template <class Error>
  bool parse_error(size_t, const std::string&, const Error& error) {
    throw error;
  }

 private:
  // An object or an array whose end has not been read yet.
  struct Open {
    bool is_array = false;
    Json array = Json::array();
    OrderedObject object;
    std::string key;  // key of the object's next value
  };

  bool close(Json value) {
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (open_.empty()) {
      done_ = std::move(value);
    } else if (open_.back().is_array) {
      open_.back().array.push_back(std::move(value));
    } else {
      open_.back().object.set(std::move(open_.back().key), std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;  // the outermost first
  Json done_;
};

}  // namespace

void OrderedObject::set(std::string key, Json value) {
  auto& members = object_.get_ref<Json::object_t&>();
  if (members.size() < kFew) {
    object_[std::move(key)] = std::move(value);
    return;
  }
  for (size_t i = places_.size(); i < members.size(); i++) places_.emplace(members.data()[i].first, i);
  const auto [place, is_new] = places_.emplace(key, members.size());
  if (is_new) {
    members.emplace_back(std::move(key), std::move(value));
  } else {
    members.data()[place->second].second = std::move(value);
  }
}

Json OrderedObject::take() {
  places_.clear();
  return std::exchange(object_, Json::object());
}

Json parse_ordered_json(std::string_view text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

namespace fs = std::filesystem;
namespace {

constexpr int kMaxDepth = 64;  // writing a value is recursive
constexpr const char* kAdvice = "copy or download it again";

// Returns the line and column of a byte: "12:3".
std::string place(const std::string& text, size_t byte) {
  const auto end = text.begin() + static_cast<int64_t>(std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line_start = std::find(std::make_reverse_iterator(end), text.rend(), '\n').base();
  return concat(1 + std::count(text.begin(), end, '\n'), ":", 1 + (end - line_start));
}

// Says why a file is no JSON.
std::string why_no_json(const std::string& text, const std::string& where,
                        const nlohmann::json::parse_error& error) {
  if (text.empty()) return concat(where, ": is empty; ", kAdvice);
  if (const std::string what = other_kind(text); !what.empty()) return concat(where, ": ", what);
  if (std::string_view(error.what()).find("ill-formed UTF-8") != std::string_view::npos)
    return concat(where, ":", place(text, error.byte), ": is not UTF-8 here; save the file as UTF-8, or ",
                  kAdvice);
  if (const auto problem = find_json_problem(text, JsonEnd::whole_file))
    return concat(where, ":", place(text, problem->byte + 1), ": is not valid JSON: ", problem->what,
                  "; mend that, or ", kAdvice);
  return concat(where, ":", place(text, error.byte),
                ": is not valid JSON here; is the file complete? Copy or download it again");
}

template <class Json>
Json parse(const std::string& text) {
  if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) return parse_ordered_json(text);
  return Json::parse(text);
}

}  // namespace

template <class Json>
Json parse_json_object(const std::string& text, const std::string& where) {
  JsonStructure structure;
  structure.open = [&](int depth) {
    if (depth > kMaxDepth) throw FormatError(concat(where, ": is nested too deeply; ", kAdvice));
  };
  Json value;
  try {
    structure.walk(text);
    value = parse<Json>(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw FormatError(why_no_json(text, where, e));
  } catch (const nlohmann::json::out_of_range&) {
    throw FormatError(concat(where, ": has a number that is too large; ", kAdvice));
  }
  if (!value.is_object()) throw FormatError(concat(where, ": is not a JSON object"));
  return value;
}

// Without a parser: most rows are short and flat.
static bool is_nested_too_deeply(std::string_view json) {
  int depth = 0;
  for (size_t at = 0; at < json.size(); at++) {
    const char c = json[at];
    if (c == '[' || c == '{') depth++;
    if (c == ']' || c == '}') depth--;
    if (depth > kMaxDepth) return true;
    if (c != '"') continue;
    for (at++; at < json.size() && json[at] != '"'; at++) {
      if (json[at] == '\\') at++;
    }
  }
  return false;
}

std::optional<nlohmann::ordered_json> parse_row(std::string_view line) {
  if (is_nested_too_deeply(line)) return std::nullopt;
  auto row = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return std::nullopt;
  return row;
}

template nlohmann::json parse_json_object(const std::string& text, const std::string& where);
template nlohmann::ordered_json parse_json_object(const std::string& text, const std::string& where);

nlohmann::json read_json_object(const fs::path& path) {
  return parse_json_object<nlohmann::json>(read_file(path), path.string());
}

nlohmann::ordered_json read_ordered_json_object(const fs::path& path) {
  return parse_json_object<nlohmann::ordered_json>(read_file(path), path.string());
}

std::string ascii_json(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/true, nlohmann::ordered_json::error_handler_t::replace);
}

void write_json(const fs::path& path, const nlohmann::json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

void write_json(const fs::path& path, const nlohmann::ordered_json& value) {
  write_atomically(path, value.dump(2) + "\n");
}

}  // namespace trainer
