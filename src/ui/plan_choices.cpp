#include "ui/plan_choices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "formats/json_file.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Method {
  const char* key;
  const char* name;
  std::vector<std::string> settings;
};

const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      {"qlora", "QLoRA: LoRA on a base in 4 bits (NF4)", {"lora={}", "model.quantize=nf4"}},
      {"lora", "LoRA, rank 16 on all linear layers", {"lora={}"}},
      {"full_8bit", "All weights, 8-bit AdamW", {"optimizer.name=adamw_8bit"}},
      {"full_adafactor", "All weights, Adafactor", {"optimizer.name=adafactor"}},
      {"full_offloaded",
       "All weights, offloaded to the host",
       {"memory.offload=[optimizer, weights, activations]"}},
      {"full", "All weights, AdamW", {}},
  };
  return all;
}

struct Card {
  const char* size;
  const char* examples;
};

constexpr std::array kCards{
    Card{"8GB", "RTX 3070, 4060, 5060"},
    Card{"12GB", "RTX 3060, 4070, 5070"},
    Card{"16GB", "RTX 4060 Ti, 4080, 5080, A4000"},
    Card{"24GB", "RTX 3090, 4090, A5000, A10, L4"},
    Card{"32GB", "RTX 5090"},
    Card{"40GB", "A100 40 GB"},
    Card{"48GB", "A6000, RTX 6000 Ada, A40, L40S"},
    Card{"80GB", "A100 80 GB, H100"},
    Card{"96GB", "RTX PRO 6000, H100 NVL"},
    Card{"141GB", "H200"},
};

std::string kind_of_model(const fs::path& file) {
  try {
    const Json config = read_ordered_json_object(file);
    const auto type = config.find("model_type");
    const bool is_t5 =
        type != config.end() && type->is_string() && type->get<std::string>().find("t5") != std::string::npos;
    return is_t5 ? "encoder-decoder" : "decoder";
  } catch (const Error&) {
    return "decoder";
  }
}

// name -> kind
std::map<std::string, std::string> models() {
  std::map<std::string, std::string> found;
  const auto folder = find_installed("configs/models");
  if (!folder) return found;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(*folder, failed)) {
    if (entry.path().extension() == ".json")
      found.emplace(entry.path().stem().string(), kind_of_model(entry.path()));
  }
  return found;
}

std::string word(const Query& query, const char* name, const std::string& otherwise) {
  const auto found = query.find(name);
  return found == query.end() ? otherwise : found->second;
}

int64_t number(const Query& query, const char* name, int64_t otherwise, int64_t most) {
  const auto found = query.find(name);
  if (found == query.end()) return otherwise;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most)
    throw ConfigError(concat(name, ": give a whole number from 1 to ", grouped(most)));
  return value;
}

}  // namespace

Json plan_choices() {
  Json choices{{"models", Json::array()}, {"methods", Json::array()}, {"cards", Json::array()}};
  for (const auto& [name, kind] : models()) choices["models"].push_back({{"name", name}, {"kind", kind}});
  for (const Method& method : methods())
    choices["methods"].push_back({{"key", method.key}, {"name", method.name}});
  for (const Card& card : kCards)
    choices["cards"].push_back({{"size", card.size}, {"examples", card.examples}});
  return choices;
}

std::vector<std::string> plan_arguments(const Query& query) {
  const std::string model = word(query, "model", "");
  const auto known = models();
  const auto found = known.find(model);
  if (found == known.end()) throw ConfigError("model: choose one of the list");
  const auto method = std::ranges::find(methods(), word(query, "method", "lora"),
                                        [](const Method& m) { return std::string(m.key); });
  if (method == methods().end()) throw ConfigError("method: choose one of the list");
  std::string sizes;
  for (const Card& card : kCards) sizes += concat(sizes.empty() ? "" : ",", card.size);
  const int64_t length = number(query, "length", 2048, 1'000'000), batch = number(query, "batch", 1, 4096),
                update = number(query, "update", 16, 65536);
  std::vector<std::string> arguments{
      "plan",
      "--json",
      "--gpus",
      sizes,
      "model.path=" + model,
      "model.dtype=bf16",
      concat("training.batch_size=", std::min(batch, update)),
      concat("training.effective_batch_size=", update),
      concat("memory.gradient_checkpointing=",
             word(query, "checkpointing", "true") == "false" ? "false" : "true")};
  if (found->second == "decoder") {
    arguments.push_back(concat("data.max_length=", length));
  } else {
    arguments.push_back(concat("data.max_source_length=", length));
    arguments.push_back(concat("data.max_target_length=", std::max<int64_t>(1, length / 4)));
  }
  arguments.insert(arguments.end(), method->settings.begin(), method->settings.end());
  return arguments;
}

}  // namespace trainer::ui
