#include "hub/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "net/address.h"

namespace trainer::hub {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_on(const char* name) {
  std::string value = variable(name);
  std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

int seconds(const char* name, int fallback) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : fallback;
}

fs::path home() { return variable("HOME").empty() ? fs::path("/") : fs::path(variable("HOME")); }

fs::path expand_home(const std::string& path) {
  if (path == "~") return home();
  return path.starts_with("~/") ? home() / path.substr(2) : fs::path(path);
}

fs::path hf_home() {
  if (const std::string folder = variable("HF_HOME"); !folder.empty()) return expand_home(folder);
  const std::string xdg = variable("XDG_CACHE_HOME");
  return (xdg.empty() ? home() / ".cache" : expand_home(xdg)) / "huggingface";
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void find_token(Settings& settings) {
  if (is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    settings.token = trimmed(variable(name));
    settings.token_source = name;
    if (!settings.token.empty()) return;
  }
  const std::string path = variable("HF_TOKEN_PATH");
  const fs::path file = path.empty() ? hf_home() / "token" : expand_home(path);
  settings.token_source = file.string();
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return;
  try {
    settings.token = trimmed(read_file(file));
  } catch (const FormatError& error) {
    log::warning(concat(error.what(), "; the Hugging Face Hub is asked without a token"));
  }
}

void read_token(Settings& settings, const fs::path& file) {
  try {
    settings.token = trimmed(read_file(file));
  } catch (const FormatError& error) {
    throw ConfigError(concat("--token-file: ", error.what()));
  }
  if (settings.token.empty()) throw ConfigError(concat("--token-file: ", file.string(), " is empty"));
  settings.token_source = file.string();
}

// Whoever is on the way could read it.
void refuse_open_token(Settings& settings) {
  const std::string origin = net::origin_of(settings.endpoint);
  if (settings.token.empty() || !origin.starts_with("http://") || net::keeps_secrets(settings.endpoint))
    return;
  log::warning(concat("HF_ENDPOINT is ", origin,
                      ", which is not encrypted: the token is not sent there; use an address with https://"));
  settings.token.clear();
}

}  // namespace

fs::path cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string folder = variable(name); !folder.empty()) return expand_home(folder);
  }
  return hf_home() / "hub";
}

Settings read_settings(const std::optional<fs::path>& token_file) {
  Settings settings;
  settings.endpoint = trimmed(variable("HF_ENDPOINT"));
  if (settings.endpoint.empty()) settings.endpoint = "https://huggingface.co";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  settings.shown_endpoint = net::without_user(settings.endpoint);
  settings.cache = cache_folder();
  settings.is_offline = is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE");
  settings.etag_timeout = seconds("HF_HUB_ETAG_TIMEOUT", settings.etag_timeout);
  settings.download_timeout = seconds("HF_HUB_DOWNLOAD_TIMEOUT", settings.download_timeout);
  token_file ? read_token(settings, *token_file) : find_token(settings);
  refuse_open_token(settings);
  return settings;
}

}  // namespace trainer::hub
