#include "trainer/training/artefacts.h"

#include <algorithm>
#include <charconv>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/models/lora.h"
#include "trainer/models/tensor_views.h"
#include "trainer/text/tokenizer.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Tensors on a device come to the host one at a time, when they are written.
TensorSource source_of(const at::Tensor& tensor) {
  return {file_dtype(tensor.scalar_type()), tensor.sizes().vec(), [tensor](std::ostream& out) {
            const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
            out.write(static_cast<const char*>(host.const_data_ptr()),
                      static_cast<std::streamsize>(host.nbytes()));
          }};
}

int64_t save_adapter(Model& model, const AdapterConfig& config, const fs::path& directory) {
  int64_t bytes = 0;
  std::map<std::string, at::Tensor> host;
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : adapter_tensors(model)) {
    const at::Tensor& kept = host[name] = tensor.to(at::kCPU).contiguous();
    views[name] = view_of(kept);
    bytes += static_cast<int64_t>(kept.nbytes());
  }
  write_adapter_weights(directory, views);
  write_adapter_config(directory, config);
  return bytes;
}

int64_t save_whole(Model& model, const fs::path& base, const fs::path& directory) {
  int64_t bytes = 0;
  TensorSources sources;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    sources[name] = source_of(parameter.value);
    bytes += static_cast<int64_t>(parameter.value.nbytes());
  });
  write_model_weights(directory, sources);
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
  if (model.config().value("vocab_size", int64_t{0}) != model.vocab_size())
    changes["vocab_size"] = model.vocab_size();
  write_model_config(base, directory, file_dtype(model.dtype()), changes);
  return bytes;
}

// The step of "checkpoint-STEP", or -1.
int64_t checkpoint_step(const fs::path& path) {
  const std::string name = path.filename().string(), prefix = "checkpoint-";
  int64_t step = -1;
  if (!name.starts_with(prefix)) return -1;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

void remove_oldest(const fs::path& output_dir, int64_t keep) {
  std::vector<std::pair<int64_t, fs::path>> checkpoints;
  for (const auto& entry : fs::directory_iterator(output_dir)) {
    if (const int64_t step = checkpoint_step(entry.path()); step >= 0)
      checkpoints.emplace_back(step, entry.path());
  }
  std::ranges::sort(checkpoints);
  for (size_t i = 0; i + static_cast<size_t>(keep) < checkpoints.size(); i++)
    fs::remove_all(checkpoints[i].second);
}

}  // namespace

int64_t Artefacts::save(Model& model, const fs::path& directory) const {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw FormatError(concat(directory.string(), ": cannot be made: ", error.message()));
  // The weights first: where they do not fit on the disk, no half of a model directory is left.
  const int64_t bytes =
      adapter ? save_adapter(model, *adapter, directory) : save_whole(model, base, directory);
  copy_companion_files(base, directory);
  const fs::path& from = tokenizer.empty() ? base : tokenizer;
  if (from != base) copy_companion_files(from, directory);
  if (!added_tokens.empty()) save_tokenizer(from, added_tokens, directory);
  return bytes;
}

fs::path Artefacts::save_checkpoint(Model& model, const fs::path& output_dir, int64_t step,
                                    int64_t total_limit, int64_t* bytes) const {
  const fs::path final_path = output_dir / concat("checkpoint-", step),
                 temporary = final_path.string() + ".tmp";
  try {
    fs::remove_all(temporary);
    *bytes = save(model, temporary);
    fs::remove_all(final_path);
    fs::rename(temporary, final_path);
    if (total_limit > 0) remove_oldest(output_dir, total_limit);
  } catch (const fs::filesystem_error& e) {
    throw FormatError(concat(final_path.string(), ": cannot be written: ", e.code().message()));
  }
  return final_path;
}

}  // namespace trainer
