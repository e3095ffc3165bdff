#include "run/run_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "trainer/formats/model_directory.h"
#include "trainer/training/trainer.h"

#include "base/release_pages.h"
#include "formats/optimizer_state.h"
#include "models/tensor_views.h"
#include "run/tensor_files.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Copies tensors to the host. Two names of one tensor stay two names of one copy.
class HostCopies {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    if (tensor.is_meta()) return tensor;  // another rank has it
    at::Tensor& copy = copies_[tensor.const_data_ptr()];
    if (!copy.defined())
      copy = tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    return copy;
  }

 private:
  std::map<const void*, at::Tensor> copies_;
};

// Returns a tensor on the bytes of a mapped file. The pages are released with the tensor.
at::Tensor in_file(const TensorView& view, const std::shared_ptr<const MappedFile>& mapping) {
  const auto give_back = [view, mapping](void*) {
    release_pages(view.data, static_cast<int64_t>(view.nbytes));
  };
  return at::from_blob(view.data, view.shape, give_back, at::TensorOptions().dtype(scalar_type(view.dtype)));
}

TensorsOfParameters<TensorSource> sources_of(const OptimizerTensors& tensors) {
  TensorsOfParameters<TensorSource> sources;
  for (const auto& [parameter, kept] : tensors) {
    for (const auto& [what, tensor] : kept) sources[parameter][what] = source_of(tensor);
  }
  return sources;
}

}  // namespace

int64_t RunState::bytes() const {
  int64_t sum = weights.bytes();
  for (const auto& [parameter, kept] : optimizer.tensors) {
    for (const auto& [what, tensor] : kept) sum += static_cast<int64_t>(tensor.nbytes());
  }
  return sum;
}

RunState RunState::copied_to_host() const {
  const at::NoGradGuard no_grad;
  HostCopies copies;
  RunState copy = *this;
  for (auto& [name, tensor] : copy.weights.tensors) tensor = copies.of(tensor);
  for (auto& [parameter, kept] : copy.optimizer.tensors) {
    for (auto& [what, tensor] : kept) tensor = copies.of(tensor);
  }
  return copy;
}

void RunState::write(const Artefacts& artefacts, const fs::path& directory,
                     const TensorsElsewhere& elsewhere) const {
  artefacts.save(weights, directory);
  write_trainer_state(directory, trainer_state);
  if (!position) return;
  TensorsOfParameters<TensorSource> all = sources_of(optimizer.tensors);
  all.insert(elsewhere.begin(), elsewhere.end());
  write_optimizer_state(directory, optimizer.name, optimizer.steps_taken, all);
  write_position(directory, *position);
}

void RunState::fill(const fs::path& directory) const {
  fill_optimizer_state(directory, sources_of(optimizer.tensors));
  TensorSources own;
  for (const auto& [name, tensor] : weights.tensors) own[name] = source_of(tensor);
  if (!own.empty()) fill_model_weights(directory, own);
}

std::string layout_note(const OptimizerTensors& tensors) {
  nlohmann::json note = nlohmann::json::array();
  for (const auto& [parameter, kept] : tensors) {
    for (const auto& [what, tensor] : kept) {
      note.push_back(
          {parameter, what, static_cast<int>(file_dtype(tensor.scalar_type())), tensor.sizes().vec()});
    }
  }
  return note.dump();
}

TensorsElsewhere layout_in(const std::string& note) {
  TensorsElsewhere tensors;
  for (const nlohmann::json& row : nlohmann::json::parse(note)) {
    tensors[row.at(0).get<std::string>()][row.at(1).get<std::string>()] = {
        static_cast<Dtype>(row.at(2).get<int>()), row.at(3).get<std::vector<int64_t>>(), nullptr};
  }
  return tensors;
}

void load_optimizer(Trainer& trainer, const fs::path& checkpoint) {
  const OptimizerState state = read_optimizer_state(checkpoint);
  OptimizerSnapshot saved{state.name, state.steps_taken, {}};
  for (const auto& [parameter, kept] : state.tensors) {
    const auto owner = trainer.owners().find(parameter);
    if (owner != trainer.owners().end() && owner->second != trainer.ranks().rank()) continue;
    for (const auto& [what, view] : kept) saved.tensors[parameter][what] = in_file(view, state.mapping);
  }
  trainer.restore_optimizer(std::move(saved), (checkpoint / kOptimizerFile).string());
}

}  // namespace trainer
