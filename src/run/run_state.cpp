#include "trainer/run/run_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/optimizer_state.h"

#include "run/tensor_files.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdamW = "adamw";

// Two names of one tensor stay two names of one.
class HostCopies {
 public:
  at::Tensor of(const at::Tensor& tensor) {
    at::Tensor& copy = copies_[tensor.const_data_ptr()];
    if (!copy.defined())
      copy = tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    return copy;
  }

 private:
  std::map<const void*, at::Tensor> copies_;
};

}  // namespace

int64_t RunState::bytes() const {
  int64_t sum = weights.bytes();
  for (const auto& [parameter, kept] : optimizer) {
    for (const auto& [what, tensor] : kept) sum += static_cast<int64_t>(tensor.nbytes());
  }
  return sum;
}

RunState RunState::copied_to_host() const {
  const at::NoGradGuard no_grad;
  HostCopies copies;
  RunState copy = *this;
  for (auto& [name, tensor] : copy.weights.tensors) tensor = copies.of(tensor);
  for (auto& [parameter, kept] : copy.optimizer) {
    for (auto& [what, tensor] : kept) tensor = copies.of(tensor);
  }
  return copy;
}

void RunState::write(const Artefacts& artefacts, const fs::path& directory) const {
  artefacts.save(weights, directory);
  write_trainer_state(directory, trainer_state);
  if (!position) return;
  TensorsOfParameters<TensorSource> sources;
  for (const auto& [parameter, kept] : optimizer) {
    for (const auto& [what, tensor] : kept) sources[parameter][what] = source_of(tensor);
  }
  write_optimizer_state(directory, kAdamW, updates, sources);
  write_position(directory, *position);
}

void load_optimizer(AdamW& optimizer, const fs::path& checkpoint) {
  const OptimizerState state = read_optimizer_state(checkpoint);
  const fs::path file = checkpoint / kOptimizerFile;
  if (state.name != kAdamW)
    throw FormatError(concat(file.string(), ": is the state of '", state.name, "', not of ", kAdamW));
  std::map<std::string, at::Tensor> places;
  for (const auto& [parameter, kept] : optimizer.tensors()) {
    for (const auto& [what, tensor] : kept) places[concat(parameter, ".", what)] = tensor;
  }
  std::map<std::string, TensorView> stored;
  for (const auto& [parameter, kept] : state.tensors) {
    for (const auto& [what, view] : kept) stored[concat(parameter, ".", what)] = view;
  }
  fill_tensors(places, stored, file);
  optimizer.set_steps_taken(state.steps_taken);
}

}  // namespace trainer
