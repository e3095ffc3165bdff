#include "run/fixed_settings.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <span>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/formats/model_directory.h"

#include "base/checksum.h"
#include "base/mappings.h"
#include "base/threads.h"
#include "config/go_on.h"
#include "config/schema.h"
#include "data/data_files.h"
#include "run/output_directory.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Settings = std::map<std::string, std::string>;

constexpr const char* kWeights = "model.path weights";
constexpr const char* kPartsChecksum = "xxh3 of parts ";

// Adds a tensor's name, type and shape, and 16 pieces of its bytes, spread over it. That is enough, because
// another training of the same model changes every part.
void add_tensor(const std::string& name, const TensorView& view, std::string& seen) {
  constexpr size_t kPieces = 16, kPiece = 256;
  seen += concat(name, " ", dtype_name(view.dtype), " ", shape_string(view.shape), "\n");
  const size_t stride = std::max(view.nbytes / kPieces, kPiece);
  for (size_t begin = 0; begin < view.nbytes; begin += stride)
    seen.append(reinterpret_cast<const char*>(view.data) + begin, std::min(kPiece, view.nbytes - begin));
}

// What config.json says, without what says nothing of the model.
nlohmann::json told_config(const fs::path& directory) {
  nlohmann::json config = read_model_config(directory);
  for (const char* key : {"_name_or_path", "transformers_version"}) config.erase(key);
  return config;
}

std::string model_text(const fs::path& directory) {
  const ModelWeights weights = read_model_weights(directory);
  const nlohmann::json config = told_config(directory);
  std::string seen = config.dump();
  for (const auto& [name, view] : weights.tensors) add_tensor(name, view, seen);
  for (const char* file : {"tokenizer.json", "spiece.model"}) {
    if (fs::exists(directory / file)) seen += file_checksum(directory / file);
  }
  return concat(config.at("model_type").get<std::string>(), ", ", weights.tensors.size(), " tensors, ",
                grouped(weights.total_bytes()), " bytes, xxh3 ", checksum(seen));
}

// Several threads, because one takes a third of the time until the first step of an 8B model on a GPU. More
// gain little, and a disk that has to seek would suffer.
std::vector<std::string> checksums_of(const std::vector<std::span<std::byte>>& parts) {
  constexpr int64_t kThreads = 4;
  std::vector<std::string> found(parts.size());
  std::atomic<size_t> next = 0;
  const auto work = [&](int64_t) {
    for (size_t i = next++; i < parts.size(); i = next++) {
      found[i] = checksum({reinterpret_cast<const char*>(parts[i].data()), parts[i].size()});
      release_pages(parts[i].data(), static_cast<int64_t>(parts[i].size()));
    }
  };
  std::vector<std::jthread> others;
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kThreads);
  start_threads(others, threads - 1, work);
  work(0);
  others.clear();  // waits for them
  return found;
}

// The checksum of all bytes of all tensors, regardless of the files they are in. A run that begins has loaded
// the same bytes, and one that resumes loads them next, so they are read from the disk once if they stay in
// the page cache. Pages are released, because they would count as memory of the run.
std::string weights_text(const fs::path& directory) {
  constexpr size_t kPart = size_t{1} << 20U;
  const ModelWeights weights = read_model_weights(directory);
  std::string seen;
  std::vector<std::span<std::byte>> parts;
  for (const auto& [name, view] : weights.tensors) {
    seen += concat(name, " ", view.nbytes, "\n");
    for (size_t begin = 0; begin < view.nbytes; begin += kPart)
      parts.emplace_back(const_cast<std::byte*>(view.data) + begin, std::min(kPart, view.nbytes - begin));
  }
  return concat(kPartsChecksum, checksum(seen + join(checksums_of(parts), "\n")));
}

std::string file_text(const fs::path& file) {
  if (!fs::exists(file)) return "none";
  return concat(grouped(static_cast<int64_t>(fs::file_size(file))), " bytes, xxh3 ", file_checksum(file));
}

std::string folder_text(const fs::path& folder) {
  if (!fs::is_directory(folder)) return "none";
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().filename().string()] = file_checksum(entry.path());
  }
  std::string seen;
  for (const auto& [name, digits] : files) seen += concat(name, " ", digits, "\n");
  return concat(files.size(), files.size() == 1 ? " file" : " files", ", xxh3 ", checksum(seen));
}

// Adds an entry for each file that a tokenizer or a chat template is read from: "model.path
// tokenizer_config.json". A missing file has an entry too, because it may be added later.
void add_text_files(const std::string& key, const fs::path& directory, Settings& fixed) {
  for (const char* file : {"tokenizer.json", "spiece.model", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"})
    fixed[concat(key, " ", file)] = file_text(directory / file);
  fixed[key + " additional_chat_templates"] = folder_text(directory / "additional_chat_templates");
}

// Describes the data files as they are on the disk, compressed or not.
std::string data_text(const std::vector<DataSource>& sources) {
  std::vector<fs::path> files;
  std::string weights;
  for (const DataSource& source : sources) {
    const std::vector<fs::path> found = data_files(source);
    files.insert(files.end(), found.begin(), found.end());
    if (source.weight != 1) weights += concat(", weight ", source.weight, " up to file ", files.size());
    if (source.loss_weight != 1)
      weights += concat(", loss_weight ", source.loss_weight, " up to file ", files.size());
  }
  std::string checksums;
  int64_t bytes = 0;
  for (const fs::path& file : files) {
    try {
      checksums += file_checksum(file);
      bytes += static_cast<int64_t>(fs::file_size(file));
    } catch (const std::exception& error) {
      throw DataError(error.what());
    }
  }
  return concat(grouped(bytes), " bytes in ", files.size(), files.size() == 1 ? " file" : " files", ", xxh3 ",
                files.size() == 1 ? checksums : checksum(checksums), weights);
}

void add_model(const Config& config, Settings& fixed) {
  fixed["model.path"] = model_text(config.model.path);
  fixed[kWeights] = weights_text(config.model.path);
  add_text_files("model.path", config.model.path, fixed);
}

void add_adapter(const Config& config, Settings& fixed) {
  if (!config.lora || config.lora->adapter.empty()) return;
  const fs::path directory = config.lora->adapter;
  fixed["lora.adapter"] =
      concat("adapter_config.json, xxh3 ", file_checksum(directory / "adapter_config.json"));
  fixed["lora.adapter adapter_model.safetensors"] = file_text(directory / "adapter_model.safetensors");
  add_text_files("lora.adapter", directory, fixed);
}

// For each key marked fixes_run_by_content: adds its content, or nothing if that does not matter.
using AddContent = void (*)(const Config& config, Settings& fixed);
const std::map<std::string, AddContent>& contents() {
  static const std::map<std::string, AddContent> by_key{
      {"model.path", add_model},
      {"model.dtype",
       [](const Config& config, Settings& fixed) {
         if (config.model.dtype != ModelDtype::automatic)
           fixed["model.dtype"] = value_text(config, "model.dtype");
       }},
      {"lora.adapter", add_adapter},
      {"data.train",
       [](const Config& config, Settings& fixed) { fixed["data.train"] = data_text(config.data.train); }},
      {"data.eval",  // what is held out is missing from the training data
       [](const Config& config, Settings& fixed) {
         if (config.data.eval.held_out > 0) fixed["data.eval"] = value_text(config, "data.eval");
       }},
      {"data.chat_template",
       [](const Config& config, Settings& fixed) {
         const std::string& file = config.data.chat_template;
         fixed["data.chat_template"] = file.empty() ? "none" : file_text(file);
       }},
      {"objective.teacher",
       [](const Config& config, Settings& fixed) {
         if (!config.objective.teacher.empty())
           fixed["objective.teacher"] = teacher_text(config.objective.teacher);
       }},
      {"objective.logits",
       [](const Config& config, Settings& fixed) {
         const std::string& path = config.objective.logits;
         if (!path.empty())
           fixed["objective.logits"] = fs::is_directory(path) ? folder_text(path) : file_text(path);
       }},
      {kTemplateDate,
       [](const Config& config, Settings& fixed) {
         if (!config.data.template_date.empty()) fixed[kTemplateDate] = config.data.template_date;
       }},
      {"training.effective_batch_size", [](const Config& config, Settings& fixed) {
         fixed["training.effective_batch_size"] = std::to_string(config.effective_batch_size());
       }}};
  return by_key;
}

bool is_of_lora(const std::string& key) { return key.starts_with("lora."); }

// "model.path tokenizer.json" -> "model.path".
std::string key_of(const std::string& entry) { return entry.substr(0, entry.find(' ')); }

// An earlier version of the program saved fewer entries, so an entry that is missing there is no difference.
// Neither is a checksum of the weights that is computed in another way. The exceptions are entries that are
// saved only if set: LoRA, which has all of its keys or none, and a held-out share.
bool is_unknown_there(const FixedDifference& difference, const Settings& saved, const Settings& now) {
  if (difference.key == kWeights && !difference.saved.starts_with(kPartsChecksum)) return true;
  if (saved.contains(difference.key) || difference.key == "data.eval") return false;
  return !is_of_lora(difference.key) || std::ranges::any_of(saved, [&](const auto& entry) {
    return is_of_lora(entry.first) && now.contains(entry.first);
  });
}

bool is_accepted(const std::string& key, const Config& config) {
  return std::ranges::find(config.resume_changed, key) != config.resume_changed.end();
}

// An override of the first start that is forgotten now stands in the file that it wrote.
std::string how_it_was_started(const Config& config) {
  const std::filesystem::path directory = config.output_dir;
  std::error_code ignored;
  if (!std::filesystem::exists(directory / "config.yaml", ignored)) return "";
  Config as_it_was;
  as_it_was.output_dir = config.output_dir;
  return concat("To go on as it was started: ", go_on_command(as_it_was, directory), "\nOr choose");
}

[[noreturn]] void refuse(const std::string& where, const std::vector<std::string>& lines,
                         const std::vector<std::string>& keys, const Config& config) {
  const std::string as_it_was = how_it_was_started(config);
  throw OutputDirectoryError(
      concat(where, " is of another run:\n  ", join(lines, "\n  "), "\n",
             as_it_was.empty() ? "Choose" : as_it_was,
             " another output_dir, or start from the beginning with overwrite_output_dir=true. To "
             "resume from it all the same: 'resume_changed=[",
             join(keys), "]'"),
      ErrorCode::resume_changed);
}

constexpr const char* kSamples = "data.train samples";

}  // namespace

std::string teacher_text(const fs::path& directory) {
  if (!fs::exists(directory / "adapter_config.json")) return model_text(directory);
  return concat("adapter, xxh3 ", file_checksum(directory / "adapter_config.json"), " ",
                file_text(directory / "adapter_model.safetensors"));
}

Settings settings_of_rows(const Config& config) {
  Settings settings;
  for (const std::string& key : keys_marked(OnResume::fixes_run))
    if (key.starts_with("data.") && key != "data.shuffle") settings[key] = value_text(config, key);
  return settings;
}

std::string evaluation_data_text(const Config& config) {
  if (config.data.eval.empty()) return "none";
  const EvalData& eval = config.data.eval;
  return eval.held_out > 0 ? concat(eval.held_out, " of data.train") : data_text(eval.sources);
}

std::map<std::string, std::string> fixed_settings(const Config& config) {
  Settings fixed;
  const bool has_own_lora =
      config.lora && config.lora->adapter.empty();  // an adapter brings its own settings
  for (const OnResume mark : {OnResume::fixes_run, OnResume::is_logged}) {
    for (const std::string& key : keys_marked(mark)) {
      if (!is_of_lora(key) || has_own_lora) fixed[key] = value_text(config, key);
    }
  }
  for (const std::string& key : keys_marked(OnResume::fixes_run_by_content))
    contents().at(key)(config, fixed);
  return fixed;
}

std::map<std::string, std::string> small_inputs(const Config& config) {
  const fs::path model = config.model.path;
  Settings inputs{{"model.path config.json", concat("xxh3 ", checksum(told_config(model).dump()))},
                  {"model.path generation_config.json", file_text(model / "generation_config.json")}};
  add_text_files("model.path", model, inputs);
  if (config.lora && !config.lora->adapter.empty()) {
    const fs::path adapter = config.lora->adapter;
    inputs["lora.adapter adapter_config.json"] = file_text(adapter / "adapter_config.json");
    add_text_files("lora.adapter", adapter, inputs);
  }
  if (!config.data.chat_template.empty()) inputs["data.chat_template"] = file_text(config.data.chat_template);
  return inputs;
}

void keep_open_settings(const Settings& saved, Settings& now) {
  for (const char* key : {"model.dtype", kTemplateDate})
    if (const auto found = saved.find(key); found != saved.end()) now.insert(*found);
  if (const auto samples = saved.find(kSamples); samples != saved.end()) now[kSamples] = samples->second;
}

void check_fixed_settings(const Settings& saved, const Settings& now, const Config& config,
                          const std::string& where, std::set<std::string>& logged) {
  std::vector<std::string> lines, keys;
  for (const FixedDifference& difference : differences(saved, now)) {
    if (is_unknown_there(difference, saved, now)) continue;
    const std::string key = key_of(difference.key);
    const std::string line =
        concat(difference.key, ": ", difference.saved, " there, ", difference.now, " here");
    if (on_resume(key) == OnResume::is_logged) {
      if (logged.insert(line).second) log::info(concat(line, "; the run resumes with the new value"));
    } else if (is_accepted(key, config)) {
      if (logged.insert(line).second) log::warning(concat(line, "; accepted by resume_changed"));
    } else {
      const bool keepable = key == "training.effective_batch_size" || key == kTemplateDate;
      lines.push_back(keepable ? concat(line, "; ", key, "=", difference.saved, " keeps it") : line);
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  if (!lines.empty()) refuse(where, lines, keys, config);
}

void check_samples(RunPosition& position, const std::string& samples, int64_t epoch_size,
                   const Config& config) {
  const auto saved = position.fixed.find(kSamples);
  const bool known = saved != position.fixed.end();
  const bool differ =
      known ? saved->second != samples : position.step > 0 && position.dataset_size != epoch_size;
  const std::string there =
      known ? saved->second : concat(grouped(position.dataset_size), " samples in an epoch");
  const std::string here = known ? samples : concat(grouped(epoch_size), " samples in an epoch");
  position.fixed[kSamples] = samples;
  if (!differ) return;
  const std::string line = concat(kSamples, ": ", there, " there, ", here, " here");
  // Another file, model or limit that was accepted also changes the samples.
  const bool follows = std::ranges::any_of(config.resume_changed, [](const std::string& key) {
    return key.starts_with("data.") || key.starts_with("model.") || key == "lora.adapter";
  });
  if (!follows) refuse(concat("output_dir ", config.output_dir), {line}, {key_of(kSamples)}, config);
  log::warning(concat(line, "; it follows from what resume_changed accepts"));
}

}  // namespace trainer
