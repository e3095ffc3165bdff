// JSON files and texts: objects in order, in linear time, of bounded depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace trainer {

// JSON files whose top level is an object.

// Parses a file's text. Throws FormatError (`where`:line:column for a syntax error) when it is not a JSON
// object, or is nested deeper than any file of a model. For json and ordered_json, which keeps the order of
// the keys; both take linear time.
template <class Json>
Json parse_json_object(const std::string& text, const std::string& where);

// Returns the object of one line; nothing if it is none, or nested too deeply. For files of rows whose last
// line may be half-written, and to which other programs may have written.
std::optional<nlohmann::ordered_json> parse_row(std::string_view line);

// Throws FormatError also when the file cannot be read.
nlohmann::json read_json_object(const std::filesystem::path& path);
nlohmann::ordered_json read_ordered_json_object(const std::filesystem::path& path);

// Returns the text of `value` in ASCII; invalid UTF-8 becomes U+FFFD. indent: -1 for one line.
std::string ascii_json(const nlohmann::ordered_json& value, int indent);

// Writes it atomically, indented by two spaces and with a newline at the end, as the Hugging Face libraries
// do.
void write_json(const std::filesystem::path& path, const nlohmann::json& value);
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

// JSON objects that keep the order of their keys, in linear time also for very many keys. The parser of
// nlohmann::ordered_json compares each new key with all others of its object.

// Builds an object. Finds keys by hash as soon as there are more than a few.
class OrderedObject {
 public:
  using Json = nlohmann::ordered_json;

  // Adds a key at the end. If it exists, its value is replaced and its place stays, as in Python.
  void set(std::string key, Json value);
  // Returns the object and leaves this one empty.
  Json take();

 private:
  Json object_ = Json::object();
  std::unordered_map<std::string, size_t> places_;  // of the keys; empty while there are few
};

// Returns what nlohmann::ordered_json::parse() returns, and throws the same: its parse_error or out_of_range.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// A first pass over JSON text that builds nothing, to refuse text that is nested too deeply before it is
// parsed. The callback of nlohmann's parser could do the same, but it scans everything parsed so far at the
// end of each object, which takes quadratic time.

class JsonStructure : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Called with the depth of each object or list, and with the keys of objects; they throw to refuse.
  std::function<void(int depth)> open;
  std::function<void(int depth, const std::string& name)> name;

  // Stops silently at invalid JSON; the parser reports that.
  void walk(std::string_view text) { nlohmann::json::sax_parse(text, this); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool key(std::string& text) override {
    if (name) name(depth_, text);
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool enter() {
    depth_++;
    if (open) open(depth_);
    return true;
  }
  bool leave() {
    depth_--;
    return true;
  }

  int depth_ = 0;
};

}  // namespace trainer
