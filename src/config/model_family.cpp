#include "config/model_family.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "hub/fetch.h"
#include "hub/name.h"

namespace trainer::config {
namespace {

namespace fs = std::filesystem;

fs::path config_file(const std::string& path) {
  std::error_code ignored;
  if (path.empty()) return {};
  if (fs::is_directory(path, ignored)) return fs::path(path) / "config.json";
  if (path.ends_with(".json")) return path;
  if (const auto card = find_installed(concat("configs/models/", path, ".json"))) return *card;
  const auto name = hub::find_name(hub::Kind::model, path);
  const fs::path snapshot = name ? hub::cached_snapshot(*name) : fs::path();
  return snapshot.empty() ? snapshot : snapshot / "config.json";
}

}  // namespace

std::string model_family(const std::string& path) {
  static constexpr std::array<std::string_view, 5> kEncoderDecoders{"t5", "mt5", "umt5", "t5gemma",
                                                                    "t5gemma2"};
  const fs::path file = config_file(path);
  std::error_code ignored;
  if (file.empty() || !fs::is_regular_file(file, ignored)) return "";
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  const auto type = json.find("model_type"), both = json.find("is_encoder_decoder");
  if (both != json.end() && both->is_boolean() && both->get<bool>()) return kT5;
  if (type == json.end() || !type->is_string()) return "";
  return std::ranges::find(kEncoderDecoders, type->get_ref<const std::string&>()) == kEncoderDecoders.end()
             ? kDecoders
             : kT5;
}

}  // namespace trainer::config
