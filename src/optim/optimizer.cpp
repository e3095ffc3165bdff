#include "trainer/optim/optimizer.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/optim/adafactor.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw_8bit.h"

#include "memory/offload.h"
#include "optim/state_memory.h"

namespace trainer {
namespace {

using NamedTensors = std::map<std::string, at::Tensor>;

// Tensors by their names in the file.
NamedTensors flat(OptimizerTensors tensors) {
  NamedTensors named;
  for (auto& [parameter, kept] : tensors) {
    for (auto& [what, tensor] : kept) named[concat(parameter, ".", what)] = std::move(tensor);
  }
  return named;
}

std::string shape_of(const at::Tensor& tensor) { return shape_string(tensor.sizes().vec()); }

std::vector<std::string> misfits(const NamedTensors& places, const NamedTensors& saved) {
  std::vector<std::string> problems;
  for (const auto& [name, place] : places) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      problems.push_back(concat("missing: ", name, " ", shape_of(place)));
    } else if (found->second.sizes() != place.sizes()) {
      problems.push_back(
          concat("misshapen: ", name, ": expected ", shape_of(place), ", found ", shape_of(found->second)));
    } else if (found->second.scalar_type() != place.scalar_type()) {
      problems.push_back(concat("of another type: ", name, ": expected ", c10::toString(place.scalar_type()),
                                ", found ", c10::toString(found->second.scalar_type())));
    }
  }
  for (const auto& [name, tensor] : saved) {
    if (!places.contains(name)) problems.push_back(concat("unexpected: ", name, " ", shape_of(tensor)));
  }
  return problems;
}

}  // namespace

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [parameter, kept] : tensors()) {
    for (const auto& [what, tensor] : kept) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

void Optimizer::restore(OptimizerSnapshot saved, const std::string& where) {
  if (saved.name != name()) {
    throw FormatError(concat(where, ": holds the state of the optimizer '", saved.name,
                             "', and this run uses '", name(), "'; resume with optimizer.name=", saved.name,
                             ", or start a new run in another output_dir"));
  }
  const NamedTensors places = flat(tensors());
  NamedTensors values = flat(std::move(saved.tensors));
  const std::vector<std::string> problems = misfits(places, values);
  if (!problems.empty())
    throw FormatError(concat(where, ": does not match what is trained here:\n  ", join(problems, "\n  ")));
  const at::NoGradGuard no_grad;
  for (const auto& [name, place] : places) {
    at::Tensor& value = values.at(name);
    place.copy_(value);
    value.reset();
    release_offloaded(place);
  }
  steps_ = saved.steps_taken;
}

at::Tensor clip_scale(const at::Tensor& norm, double max_grad_norm) {
  if (max_grad_norm <= 0) return at::ones_like(norm);
  return at::reciprocal(norm.add(1e-6).div_(max_grad_norm)).clamp_max_(1.0);
}

namespace {

template <class Made>
std::unique_ptr<Optimizer> make(std::vector<TrainedParameter> parameters, const OptimizerConfig& config,
                                uint64_t seed) {
  return std::make_unique<Made>(std::move(parameters), config, seed);
}

// The names that `optimizer.name` may have (src/config/schema.cpp).
const std::map<std::string, OptimizerFactory>& factories() {
  static const std::map<std::string, OptimizerFactory> table{
      {"adamw", make<AdamW>}, {"adamw_8bit", make<AdamW8bit>}, {"adafactor", make<Adafactor>}};
  return table;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::vector<TrainedParameter> parameters,
                                          const OptimizerConfig& config, uint64_t seed) {
  const auto found = factories().find(config.name);
  if (found != factories().end()) return found->second(std::move(parameters), config, seed);
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories()) names.push_back(name);
  throw ConfigError(concat("optimizer.name: there is no optimizer '", config.name,
                           "'; choose one of: ", join(names, ", ")));
}

namespace {

thread_local bool state_below = false;

}  // namespace

StateBelow::StateBelow(bool below) : before_(std::exchange(state_below, below)) {}
StateBelow::~StateBelow() { state_below = before_; }

at::ScalarType state_type(StateDtype wanted, const at::Tensor& weight, bool master) {
  if (wanted == StateDtype::automatic) {
    return weight.scalar_type() == at::kFloat || master ? at::kFloat : at::kBFloat16;
  }
  return wanted == StateDtype::fp32 ? at::kFloat : at::kBFloat16;
}

at::Tensor new_state(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!state_below) return at::zeros(sizes, options);
  return seen_from(offloaded_zeros(sizes, options), options.device());
}

static at::Tensor moved(const at::Tensor& state, at::Device device) {
  if (!state_below) return state.to(device, state.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  const at::Tensor there = offloaded_zeros(state.sizes(), state.options().device(device));
  there.copy_(is_offloaded(state) ? on_host(state) : state);
  return seen_from(there, device);
}

void move_state(std::initializer_list<at::Tensor*> state, at::Device device) {
  for (at::Tensor* tensor : state)
    if (tensor->defined()) *tensor = moved(*tensor, device);
}

}  // namespace trainer
