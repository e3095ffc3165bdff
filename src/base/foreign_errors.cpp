#include "base/foreign_errors.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>
#include <yaml-cpp/exceptions.h>

#include "base/text.h"
#include "base/utf8.h"

namespace trainer {
namespace {

// "number" of "type must be string, but is number": what nlohmann's parser calls a kind of value.
std::string kind_called(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kKinds{{{"null", "null"},
                                                                                 {"object", "an object"},
                                                                                 {"array", "a list"},
                                                                                 {"string", "a text"},
                                                                                 {"boolean", "true or false"},
                                                                                 {"number", "a number"},
                                                                                 {"binary", "bytes"},
                                                                                 {"discarded", "nothing"}}};
  for (const auto& [theirs, ours] : kKinds) {
    if (name.starts_with(theirs)) return std::string(ours);
  }
  return "";
}

std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? "" : text.substr(at + mark.size());
}

std::string words_of_type_error(std::string_view said) {
  const std::string found = kind_called(after(said, "but is ")), with = kind_called(after(said, " with "));
  const std::string expected = kind_called(after(said, "type must be "));
  if (!found.empty() && !expected.empty()) return concat("has ", found, " where ", expected, " is expected");
  if (!with.empty()) return concat("has ", with, " where an object or a list is expected");
  if (said.find("UTF-8") != std::string_view::npos) return "has bytes that are no UTF-8";
  return "has a value of another kind than is expected";
}

std::string words_of_range_error(std::string_view said) {
  const std::string_view key = after(said, "key '");
  if (const size_t end = key.find("' not found"); end != std::string_view::npos)
    return concat("'", one_line(key.substr(0, end), 80), "' is missing");
  if (said.find("number overflow") != std::string_view::npos) return "has a number that is too large";
  return "has a list that is too short";
}

std::string words_of_json(const nlohmann::json::exception& error) {
  const std::string_view said = error.what();
  if (dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr) return "is not valid JSON";
  if (dynamic_cast<const nlohmann::json::type_error*>(&error) != nullptr) return words_of_type_error(said);
  if (dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr) return words_of_range_error(said);
  return "is JSON of another form than is expected";
}

// What connections say, in the words of Gloo, c10d and NCCL.
struct Phrase {
  const char *theirs, *ours;
};
constexpr std::array<Phrase, 15> kOfConnections{{
    {"EADDRINUSE", "the port is in use"},
    {"ddress already in use", "the port is in use"},
    {"EADDRNOTAVAIL", "this machine does not have that address"},
    {"annot assign requested address", "this machine does not have that address"},
    {"EACCES", "the port may not be used"},
    {"onnection closed by peer", "the other side closed the connection"},
    {"onnection reset by peer", "the other side closed the connection"},
    {"ocket closed", "the other side closed the connection"},
    {"roken pipe", "the other side closed the connection"},
    {"onnection refused", "nobody listens there"},
    {"o route to host", "there is no way to that address"},
    {"etwork is unreachable", "there is no way to that address"},
    {"imed out", "no answer in time"},
    {"imeout", "no answer in time"},
    {"ncclRemoteError", "the other side closed the connection"},
}};

std::string words_of_standard(const std::exception& error) {
  if (dynamic_cast<const std::regex_error*>(&error) != nullptr)
    return "has a regular expression that is none";
  const bool is_logic = dynamic_cast<const std::logic_error*>(&error) != nullptr;
  if (is_logic || dynamic_cast<const std::range_error*>(&error) != nullptr)
    return "has a size or a number that does not go with the rest";
  return "";
}

bool is_disturbing(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
  const bool turns = (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  return (control && c != '\n' && c != '\t') || turns || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string own_words(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->what();
  if (const auto* json = dynamic_cast<const nlohmann::json::exception*>(&error)) return words_of_json(*json);
  if (dynamic_cast<const YAML::Exception*>(&error) != nullptr)
    return "is YAML of another form than is expected";
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return concat(files->path1().string(), ": ", files->code().message());
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return system->code().message();
  const std::string_view said = error.what();
  for (const Phrase& phrase : kOfConnections) {
    if (said.find(phrase.theirs) != std::string_view::npos) return phrase.ours;
  }
  const std::string words = words_of_standard(error);
  return words.empty() ? "an error that is not foreseen" : words;
}

std::string their_words(const std::exception& error) { return printable(first_line(error.what())); }

std::string printable(std::string_view text) {
  constexpr size_t kLongestCharacter = 4;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char escape[16];
    if (valid_utf8_prefix(text.substr(at, kLongestCharacter)) == 0) {
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text[at++]));
      out += escape;
      continue;
    }
    const size_t begin = at;
    const char32_t character = next_code_point(text, at);
    if (is_disturbing(character)) {
      std::snprintf(escape, sizeof escape, character < 0x80 ? "\\x%02x" : "\\u%04x",
                    static_cast<unsigned>(character));
      out += character == '\r' ? "\\r" : escape;
    } else {
      out += text.substr(begin, at - begin);
    }
  }
  return out;
}

}  // namespace trainer
