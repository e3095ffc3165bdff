// The hub's settings in environment variables; these are huggingface_hub's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer::hub {

struct Settings {
  // "https://huggingface.co", without a slash at the end; and what may be shown of it: it may hold a
  // password.
  std::string endpoint, shown_endpoint;
  std::filesystem::path cache;
  bool is_offline = false;
  std::string token;                             // empty: none
  std::string token_source;                      // "HF_TOKEN", or the file that holds it
  int etag_timeout = 10, download_timeout = 10;  // in seconds
};

// HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/...
std::filesystem::path cache_folder();

// Reads the environment. `token_file`: the token's file instead of HF_TOKEN and HF_HOME/token. Throws
// ConfigError when it cannot be read, or holds no token.
Settings read_settings(const std::optional<std::filesystem::path>& token_file = std::nullopt);

}  // namespace trainer::hub
