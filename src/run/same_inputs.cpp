#include "run/same_inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/text.h"
#include "config/schema.h"
#include "data/data_files.h"
#include "data/measure.h"
#include "run/computes_with.h"
#include "run/fixed_settings.h"
#include "run/run_state.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using SortedJson = nlohmann::json;
using Inputs = std::map<std::string, std::string>;  // "model.path config.json" -> "xxh3 0123456789abcdef"
using FileChecksums = std::map<std::string, std::string>;  // by path

std::string json_text(const SortedJson& json) {
  return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

template <class Value>
std::vector<Value> gathered(const Value& own, const Ranks& ranks) {
  std::vector<Value> all;
  for (const std::string& note : ranks.all_gather(json_text(SortedJson(own)), Channel::phases))
    all.push_back(SortedJson::parse(note).get<Value>());
  return all;
}

std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().string().ends_with(ending) && entry.is_regular_file(ignored))
      files.push_back(entry.path());
  }
  return files;
}

std::vector<fs::path> files_of(const std::vector<DataSource>& sources) {
  std::vector<fs::path> files;
  for (const DataSource& source : sources) {
    const std::vector<fs::path> found = data_files(source);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

// The files that an entry tells of.
std::vector<fs::path> files_behind(const std::string& entry, const Config& config) {
  const size_t blank = std::min(entry.find(' '), entry.size());
  const std::string key = entry.substr(0, blank), name = entry.substr(std::min(blank + 1, entry.size()));
  if (entry == "data.train") return files_of(config.data.train);
  if (entry == "data.eval") return files_of(config.data.eval.sources);
  if (entry == "data.chat_template") return {config.data.chat_template};
  if (entry == "lora.adapter") return {fs::path(config.lora->adapter) / "adapter_config.json"};
  if (key != "model.path" && key != "lora.adapter") return {};
  const fs::path folder = key == "model.path" ? config.model.path : config.lora->adapter;
  if (name == "weights") return files_in(folder, ".safetensors");
  std::error_code ignored;
  return fs::is_directory(folder / name, ignored) ? files_in(folder / name, "")
                                                  : std::vector<fs::path>{folder / name};
}

FileChecksums checksums_behind(const std::string& entry, const Config& config) {
  FileChecksums found;
  try {
    for (const fs::path& file : files_behind(entry, config))
      found[file.string()] = fs::exists(file) ? file_checksum(file) : "none";
  } catch (const std::exception& error) {  // it is read only to name the file
    log::debug(error.what());
  }
  return found;
}

// The first file that differs; "" if none is known.
std::string differing_file(const FileChecksums& first, const FileChecksums& other) {
  for (const auto* files : {&first, &other}) {
    for (const auto& [path, digits] : *files) {
      const auto here = first.find(path), there = other.find(path);
      if (here == first.end() || there == other.end() || here->second != there->second) return path;
    }
  }
  return "";
}

// An entry that not all ranks have the same, and those that have another than rank 0.
struct Difference {
  std::string entry, first, other;  // on rank 0, and on the first other
  std::vector<size_t> ranks;
};

// What a rank lacks is no difference: pieces of rows that it could not keep are made again.
std::vector<Difference> differences_among(const std::vector<Inputs>& ranks) {
  std::vector<Difference> found;
  for (const auto& [entry, first] : ranks.front()) {
    Difference difference{entry, first, "", {}};
    for (size_t rank = 1; rank < ranks.size(); rank++) {
      const auto there = ranks[rank].find(entry);
      if (there == ranks[rank].end() || there->second == first) continue;
      if (difference.ranks.empty()) difference.other = there->second;
      difference.ranks.push_back(rank);
    }
    if (!difference.ranks.empty()) found.push_back(std::move(difference));
  }
  return found;
}

std::string line_of(const Difference& difference, const std::string& file) {
  std::vector<std::string> numbers;
  for (const size_t rank : difference.ranks) numbers.push_back(std::to_string(rank));
  const bool one = numbers.size() == 1;
  return concat(one ? "rank " : "ranks ", join_some(numbers), one ? " has another " : " have another ",
                difference.entry, file.empty() ? "" : concat(" (", file, ")"),
                " than rank 0: ", difference.other, " there, ", difference.first, " on rank 0");
}

bool is_of(const Difference& difference, const std::vector<std::string>& keys) {
  return std::ranges::any_of(keys, [&](const std::string& key) {
    return difference.entry == key || difference.entry.starts_with(key + " ");
  });
}

[[noreturn]] void refuse_differences(const std::vector<Difference>& found,
                                     const std::vector<std::string>& lines) {
  const std::string files =
      concat(join(lines, "\n"), "\nAll ranks need the same files: copy those of rank 0 to ",
             "the other machines, or give a path that all of them see");
  const auto any_of = [&](const std::vector<std::string>& keys) {
    return std::ranges::any_of(found, [&](const Difference& one) { return is_of(one, keys); });
  };
  if (any_of({"model.path"})) throw of_family(ErrorCode::model_files, FormatError(files));
  if (any_of({"lora.adapter"})) throw of_family(ErrorCode::adapter, FormatError(files));
  if (any_of({"data.chat_template"})) throw of_family(ErrorCode::chat_template, FormatError(files));
  if (any_of({"resume"})) throw of_family(ErrorCode::checkpoint, FormatError(files));
  if (any_of({"data.train", "data.eval"})) throw of_family(ErrorCode::data_file, DataError(files));
  throw ConfigError(
      concat(join(lines, "\n"),
             "\nAll ranks need the same libraries and the same kind of device, or their results "
             "do not belong together"));
}

void compare(const Inputs& own, const Config& config, const Ranks& ranks) {
  std::vector<Difference> found = differences_among(gathered(own, ranks));
  std::erase_if(found, [](const Difference& difference) {
    if (difference.entry != kProcessor) return false;
    log::warning(concat(line_of(difference, ""), "; their results differ in the last bits"));
    return true;
  });
  if (found.empty()) return;
  std::map<std::string, FileChecksums> files;
  for (const Difference& difference : found)
    files[difference.entry] = checksums_behind(difference.entry, config);
  const auto files_of_ranks = gathered(files, ranks);
  std::vector<std::string> lines;
  for (const Difference& difference : found) {
    const auto of = [&](size_t rank) { return files_of_ranks.at(rank).at(difference.entry); };
    lines.push_back(line_of(difference, differing_file(of(0), of(difference.ranks.front()))));
  }
  refuse_differences(found, lines);
}

// Entries of fixed_settings() with the content of files, but for those that depend on each other. The values
// of keys were compared with the configuration.
bool is_of_files(const std::string& entry) {
  static const std::set<std::string> others{"model.path",  "model.dtype",
                                            "data.eval",   "data.train samples",
                                            kTemplateDate, "training.effective_batch_size"};
  const std::string key = entry.substr(0, entry.find(' '));
  return !others.contains(entry) && on_resume(key) == OnResume::fixes_run_by_content;
}

void add_samples(const std::string& key, const Dataset& data, const std::string& samples, Inputs& inputs) {
  const Dataset::Checksums checksums = data.checksums();
  inputs[key + " samples"] = samples;
  inputs[key + " index"] = concat("xxh3 ", checksums.samples);
  if (!checksums.pieces.empty()) inputs[key + " index of pieces"] = concat("xxh3 ", checksums.pieces);
}

// What was loaded from the checkpoint, and what each rank keeps for itself of the optimizer's state. Reading
// the files again would take longer.
void add_resumed_state(const RunParts& parts, Inputs& inputs) {
  std::map<std::string, at::Tensor> weights, state;
  for (const TrainedParameter& parameter : parts.trainer.parameters()) {
    if (!parts.trainer.sharded().contains(parameter.name)) weights[parameter.name] = parameter.value;
  }
  for (const auto& [parameter, kept] : parts.trainer.optimizer_state().tensors) {
    if (parts.trainer.owners().contains(parameter)) continue;
    for (const auto& [what, tensor] : kept) state[concat(parameter, " ", what)] = tensor;
  }
  inputs["resume weights"] = concat("xxh3 ", values_checksum(weights));
  inputs["resume optimizer state"] = concat("xxh3 ", values_checksum(state));
}

}  // namespace

void check_same_files(const Config& config, const Ranks& ranks) {
  if (ranks.alone()) return;
  Inputs own;
  run_on_all_ranks(
      ranks, [&] { own = small_inputs(config); }, Channel::phases);
  compare(own, config, ranks);
}

void check_same_inputs(const RunParts& parts, const Inputs& fixed, const std::string& samples) {
  const Ranks& ranks = parts.ranks;
  if (ranks.alone()) return;
  const Config& config = parts.asked;
  Inputs own;
  run_on_all_ranks(
      ranks,
      [&] {
        for (const auto& [entry, text] : fixed)
          if (is_of_files(entry)) own[entry] = text;
        own["model.dtype"] = parts.prepared.model->dtype() == at::kFloat ? "fp32" : "bf16";
        own["device"] = parts.device.is_cuda() ? "a GPU" : "cpu";
        own.merge(computes_with(parts.device));
        add_samples("data.train", parts.train, samples, own);
        if (parts.eval) {
          if (config.data.eval.held_out == 0) own["data.eval"] = evaluation_data_text(config);
          add_samples("data.eval", *parts.eval, samples_text(*parts.eval), own);
        }
      },
      Channel::phases);
  compare(own, config, ranks);
}

void check_same_state(const RunParts& parts, const Resumption& start) {
  if (parts.ranks.alone() || !start.checkpoint) return;
  Inputs own;
  run_on_all_ranks(
      parts.ranks, [&] { add_resumed_state(parts, own); }, Channel::phases);
  compare(own, parts.asked, parts.ranks);
}

}  // namespace trainer
