#include "config/webhook.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <regex>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "net/http.h"

namespace trainer {
namespace {

constexpr std::string_view kHidden = "***";
constexpr std::string_view kEnds = " \t\r\n\"'<>`";  // of an address inside a text

bool is_variable_name(const std::string& text) {
  static const std::regex name("[A-Za-z_][A-Za-z0-9_]*");
  return std::regex_match(text, name);
}

bool is_address(std::string_view text) { return text.starts_with("http://") || text.starts_with("https://"); }

// A host, and no blank or control character that would end the address early.
bool is_whole_address(std::string_view text) {
  if (!is_address(text)) return false;
  const size_t host = text.find("://") + 3;
  const bool has_host = host < text.size() && text[host] != '/' && text[host] != '?' && text[host] != '#';
  return has_host && std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) > 32; });
}

std::string hidden_address(std::string_view address) {
  const std::string origin = net::origin_of(address);
  return address.size() <= origin.size() + 1 ? origin : concat(origin, "/", kHidden);
}

}  // namespace

std::string webhook_address(const NotifyConfig& config) {
  const std::string& webhook = config.webhook;
  if (webhook.empty()) return "";
  if (is_address(webhook) && webhook.ends_with(kHidden))
    throw ConfigError(concat("notify.webhook: ", shown_webhook(webhook),
                             " stands in a file that was written without the secret part of the address; "
                             "give the address again, or the name of an environment variable that holds it"));
  if (is_address(webhook)) {
    if (is_whole_address(webhook)) return webhook;
    throw ConfigError("notify.webhook: is no address: it has no host, or a blank in it");
  }
  if (!is_variable_name(webhook))
    throw ConfigError(
        "notify.webhook: is neither an address (https://...) nor the name of an environment variable; it is "
        "not shown, because it may be a secret");
  const char* value = std::getenv(webhook.c_str());
  if (value == nullptr || *value == '\0')
    throw ConfigError(concat("notify.webhook: the environment variable ", webhook,
                             " is not set; it is to hold an address, https://..."));
  if (!is_whole_address(value))
    throw ConfigError(concat("notify.webhook: the environment variable ", webhook,
                             " holds no address; expected https://..."));
  return value;
}

std::string shown_webhook(const std::string& webhook) {
  if (is_address(webhook)) return hidden_address(webhook);
  return webhook.empty() || is_variable_name(webhook) ? webhook : std::string(kHidden);
}

std::string without_secrets(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = std::min(text.find("http://"), text.find("https://"));
    out += text.substr(0, begin);
    if (begin == std::string_view::npos) break;
    const std::string_view address = text.substr(begin, text.find_first_of(kEnds, begin) - begin);
    out += hidden_address(address);
    text.remove_prefix(begin + address.size());
  }
  return out;
}

std::string shown_override(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.substr(0, equals).find("hook") == std::string::npos)
    return without_secrets(text);
  return text.substr(0, equals + 1) + shown_webhook(text.substr(equals + 1));
}

}  // namespace trainer
