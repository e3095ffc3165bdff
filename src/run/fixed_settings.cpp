#include "trainer/run/fixed_settings.h"

#include <algorithm>
#include <filesystem>

#include "trainer/base/checksum.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/data/data_files.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// A tensor's name, type and shape, and 16 pieces of its bytes, spread over it: another training of the same
// model differs everywhere.
void add_tensor(const std::string& name, const TensorView& view, std::string& seen) {
  constexpr size_t kPieces = 16, kPiece = 256;
  seen += concat(name, " ", dtype_name(view.dtype), " ", shape_string(view.shape), "\n");
  const size_t stride = std::max(view.nbytes / kPieces, kPiece);
  for (size_t begin = 0; begin < view.nbytes; begin += stride)
    seen.append(reinterpret_cast<const char*>(view.data) + begin, std::min(kPiece, view.nbytes - begin));
}

std::string model_text(const fs::path& directory) {
  const ModelWeights weights = read_model_weights(directory);
  nlohmann::json config = read_model_config(directory);
  for (const char* key : {"_name_or_path", "transformers_version"}) config.erase(key);
  std::string seen = config.dump();
  for (const auto& [name, view] : weights.tensors) add_tensor(name, view, seen);
  for (const char* file : {"tokenizer.json", "spiece.model"}) {
    if (fs::exists(directory / file)) seen += file_checksum(directory / file);
  }
  return concat(config.at("model_type").get<std::string>(), ", ", weights.tensors.size(), " tensors, ",
                grouped(weights.total_bytes()), " bytes, xxh3 ", checksum(seen));
}

// Of the files as they lie there, compressed or not.
std::string data_text(const std::vector<DataSource>& sources) {
  std::vector<fs::path> files;
  std::string weights;
  for (const DataSource& source : sources) {
    const std::vector<fs::path> found = data_files(source);
    files.insert(files.end(), found.begin(), found.end());
    if (source.weight != 1) weights += concat(", weight ", source.weight, " up to file ", files.size());
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

}  // namespace

std::string evaluation_data_text(const Config& config) {
  if (config.data.eval.empty()) return "none";
  const EvalData& eval = config.data.eval;
  return eval.held_out > 0 ? concat(eval.held_out, " of data.train") : data_text(eval.sources);
}

std::map<std::string, std::string> fixed_settings(const Config& config) {
  std::map<std::string, std::string> fixed{
      {"model.path", model_text(config.model.path)},
      {"data.train", data_text(config.data.train)},
      {"training.effective_batch_size", std::to_string(config.effective_batch_size())}};
  for (const char* key : {"model.add_tokens", "data.kind", "data.input", "data.target",
                          "data.max_source_length", "data.max_target_length", "data.max_length",
                          "data.long_samples", "data.truncation_side", "data.max_samples", "data.shuffle",
                          "optimizer.name", "optimizer.master_weights", "optimizer.state_dtype", "seed"}) {
    fixed[key] = value_text(config, key);
  }
  if (config.data.eval.held_out > 0) fixed["data.eval"] = value_text(config, "data.eval");
  if (config.model.dtype != ModelDtype::automatic) fixed["model.dtype"] = value_text(config, "model.dtype");
  if (!config.lora) return fixed;
  // An adapter that is continued brings its own settings.
  if (!config.lora->adapter.empty()) {
    fixed["lora.adapter"] = concat("adapter_config.json, xxh3 ",
                                   file_checksum(fs::path(config.lora->adapter) / "adapter_config.json"));
    return fixed;
  }
  for (const char* key : {"lora.r", "lora.lora_alpha", "lora.target_modules", "lora.exclude_modules",
                          "lora.layers_to_transform", "lora.layers_pattern", "lora.rank_pattern",
                          "lora.alpha_pattern", "lora.use_rslora", "lora.use_dora", "lora.modules_to_save"}) {
    fixed[key] = value_text(config, key);
  }
  return fixed;
}

}  // namespace trainer
