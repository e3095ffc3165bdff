#include "trainer/models/merge.h"

#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/models/registry.h"

#include "models/merge_plan.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// A new or empty directory under another name, which takes its own when it is complete.
class NewDirectory {
 public:
  explicit NewDirectory(const fs::path& path) : path_(fs::absolute(path).lexically_normal()) {
    if (!path_.has_filename()) path_ = path_.parent_path();  // "out/"
    std::error_code error;
    if (fs::exists(path_) && !(fs::is_directory(path_) && fs::is_empty(path_, error))) {
      throw ConfigError(concat(path_.string(), ": is there already; give a directory that does not exist"));
    }
    temporary_ = path_.string() + ".tmp";
    fs::remove_all(temporary_, error);
    fs::create_directories(temporary_, error);
    if (error) throw FormatError(concat(temporary_.string(), ": cannot be made: ", error.message()));
  }
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;
  ~NewDirectory() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }

  const fs::path& writing() const { return temporary_; }

  void complete() {
    std::error_code error;
    fs::remove(path_, error);  // an empty one
    fs::rename(temporary_, path_, error);
    if (error) throw FormatError(concat(path_.string(), ": cannot be written: ", error.message()));
    temporary_.clear();
  }

 private:
  fs::path path_, temporary_;
};

// Keys of config.json that the merge changes.
nlohmann::ordered_json changed_keys(const MergePlan& plan, const nlohmann::json& config,
                                    const std::string& embedding) {
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
  const auto table = plan.tensors.find(embedding);
  if (table != plan.tensors.end() && config.contains("vocab_size")) {
    const int64_t rows = table->second.base.shape.at(0);
    if (config["vocab_size"] != rows) changes["vocab_size"] = rows;
  }
  // For a T5 the key means how the output is scaled; there a head counts where it is stored.
  if (plan.untied && embedding != "shared.weight") changes["tie_word_embeddings"] = false;
  return changes;
}

Dtype most_common_dtype(const MergePlan& plan) {
  std::map<Dtype, size_t> bytes;
  for (const auto& [name, tensor] : plan.tensors) bytes[tensor.dtype] += tensor.base.nbytes;
  Dtype most = Dtype::f32;
  for (const auto& [dtype, n] : bytes) {
    if (n > bytes[most]) most = dtype;
  }
  return most;
}

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

}  // namespace

MergeReport merge_model(const fs::path& source, const fs::path& out, std::optional<Dtype> dtype) {
  const fs::path base_path = base_directory(source);
  const nlohmann::json config = read_model_config(base_path);
  const std::string embedding = find_architecture(config.at("model_type")).embedding;
  const ModelWeights base = read_model_weights(base_path);
  const bool is_adapter = is_adapter_directory(source);
  SafetensorsFile adapter;
  MergePlan plan;
  if (is_adapter) {
    adapter = read_adapter_weights(source);
    plan = plan_merge(base, read_adapter_config(source), adapter, embedding,
                      config_bool(config, "tie_word_embeddings", true), source);
  } else {
    plan = plan_copy(base);
  }

  MergeReport report{plan.merged, plan.replaced, 0, plan.untied};
  NewDirectory directory(out);
  TensorSources sources;
  for (auto& [name, tensor] : plan.tensors) {
    if (dtype && is_floating(tensor.dtype)) tensor.dtype = *dtype;
    sources[name] = {tensor.dtype, tensor.base.shape, [&t = tensor](std::ostream& to) { t.write(to); }};
    report.bytes += static_cast<int64_t>(tensor_bytes(tensor.dtype, tensor.base.shape, name));
  }
  write_model_weights(directory.writing(), sources);
  write_model_config(base_path, directory.writing(), most_common_dtype(plan),
                     changed_keys(plan, config, embedding));
  copy_companion_files(base_path, directory.writing());
  if (is_adapter) copy_companion_files(source, directory.writing());
  directory.complete();
  return report;
}

}  // namespace trainer
