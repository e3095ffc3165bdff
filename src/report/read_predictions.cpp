#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include "report/read_run.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr size_t kMostSteps = 12, kMostSamples = 12, kMostBytes = 2000;

// The steps of OUT/predictions/step-N.jsonl, in order.
std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("step-") || !name.ends_with(".jsonl")) continue;
    int64_t step = 0;
    const char* const end = name.data() + name.size() - 6;
    if (std::from_chars(name.data() + 5, end, step).ptr == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// At most `count` of the items, spread evenly, the first and the last among them.
template <class Item>
std::vector<Item> spread(const std::vector<Item>& items, size_t count) {
  if (items.size() <= count) return items;
  std::vector<Item> some;
  for (size_t i = 0; i < count; i++) some.push_back(items[i * (items.size() - 1) / (count - 1)]);
  return some;
}

std::vector<Json> rows_of(const fs::path& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

std::string text_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_same_sample(const Json& row, const Json& sample) {
  return text_of(row, "origin") == text_of(sample, "origin") &&
         shortened(text_of(row, "input"), kMostBytes) == text_of(sample, "input");
}

}  // namespace

std::string shortened(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80)
    bytes--;  // not in a character
  return text.substr(0, bytes) + "…";
}

Json read_predictions(const fs::path& directory) {
  const fs::path folder = directory / "predictions";
  const std::vector<int64_t> steps = spread(steps_in(folder), kMostSteps);
  if (steps.empty()) return nullptr;
  const auto file = [&](int64_t step) { return folder / ("step-" + std::to_string(step) + ".jsonl"); };
  Json samples = Json::array();
  for (const Json& row : spread(rows_of(file(steps.back())), kMostSamples)) {
    Json sample = Json::object();
    for (const char* key : {"origin", "input", "target"})
      sample[key] = shortened(text_of(row, key), kMostBytes);
    sample["answers"] = Json::array();
    samples.push_back(std::move(sample));
  }
  for (const int64_t step : steps) {
    const std::vector<Json> rows = rows_of(file(step));
    for (Json& sample : samples) {
      const auto row = std::ranges::find_if(rows, [&](const Json& r) { return is_same_sample(r, sample); });
      sample["answers"].push_back(
          row == rows.end() ? Json() : Json(shortened(text_of(*row, "prediction"), kMostBytes)));
    }
  }
  return {{"steps", steps}, {"samples", std::move(samples)}};
}

}  // namespace trainer
