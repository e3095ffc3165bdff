#include "run/run_state.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/training/trainer.h"

#include "base/checksum.h"
#include "base/mappings.h"
#include "base/text.h"
#include "formats/optimizer_state.h"
#include "memory/offload.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

constexpr int64_t kPieceOfTensor = 4 << 20;  // elements

// Calls `use` with one piece after another, on the host and flat.
template <class Use>
void in_host_pieces(const at::Tensor& tensor, Use use) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = tensor.detach().contiguous().view({-1});
  for (int64_t first = 0; first < flat.numel(); first += kPieceOfTensor)
    use(flat.narrow(0, first, std::min(kPieceOfTensor, flat.numel() - first)).to(at::kCPU));
  release_offloaded(tensor);
}

std::vector<std::string> misfits(const std::map<std::string, at::Tensor>& places,
                                 const std::map<std::string, TensorView>& stored) {
  std::vector<std::string> problems;
  for (const auto& [name, place] : places) {
    const auto found = stored.find(name);
    if (found == stored.end()) {
      problems.push_back(concat("missing: ", name, " ", shape_string(place.sizes().vec())));
    } else if (found->second.shape != place.sizes().vec()) {
      problems.push_back(concat("misshapen: ", name, ": expected ", shape_string(place.sizes().vec()),
                                ", found ", shape_string(found->second.shape)));
    }
  }
  for (const auto& [name, view] : stored) {
    if (!places.contains(name))
      problems.push_back(concat("unexpected: ", name, " ", shape_string(view.shape)));
  }
  return problems;
}

}  // namespace

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

TensorSource source_of(const at::Tensor& tensor) {
  if (tensor.is_meta()) return {file_dtype(tensor.scalar_type()), tensor.sizes().vec(), nullptr};
  return {file_dtype(tensor.scalar_type()), tensor.sizes().vec(), [tensor](std::ostream& out) {
            const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
            out.write(static_cast<const char*>(host.const_data_ptr()),
                      static_cast<std::streamsize>(host.nbytes()));
            release_offloaded(tensor);
          }};
}

TensorSource source_of(const at::Tensor& tensor, Dtype dtype) {
  if (tensor.is_meta() || dtype == file_dtype(tensor.scalar_type())) return source_of(tensor);
  return {dtype, tensor.sizes().vec(), [tensor, dtype](std::ostream& out) {
            in_host_pieces(tensor, [&](const at::Tensor& piece) {
              const at::Tensor written = piece.to(scalar_type(dtype));
              out.write(static_cast<const char*>(written.const_data_ptr()),
                        static_cast<std::streamsize>(written.nbytes()));
            });
          }};
}

double largest_magnitude(const at::Tensor& tensor) {
  double largest = 0;
  in_host_pieces(tensor, [&](const at::Tensor& piece) {
    const double found = piece.abs().max().item<double>();
    if (!(found <= largest)) largest = found;
  });
  return largest;
}

std::string values_checksum(const std::map<std::string, at::Tensor>& tensors) {
  RunningChecksum sum;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_meta()) continue;
    sum.add(name);
    in_host_pieces(tensor, [&](const at::Tensor& piece) {
      sum.add({static_cast<const char*>(piece.const_data_ptr()), piece.nbytes()});
    });
  }
  return sum.digits();
}

void fill_tensors(const std::map<std::string, at::Tensor>& places,
                  const std::map<std::string, TensorView>& stored, const std::filesystem::path& where) {
  const std::vector<std::string> problems = misfits(places, stored);
  if (!problems.empty()) {
    throw FormatError(concat(where.string(), ": does not match what is trained here:\n  ",
                             join_some(problems, 100, "\n  ")));
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, place] : places) {
    if (place.is_meta()) continue;  // another rank has it
    const TensorView& view = stored.at(name);
    const auto options = at::TensorOptions().dtype(scalar_type(view.dtype));
    place.detach().copy_(at::from_blob(view.data, view.shape, options));
    release_pages(view.data, static_cast<int64_t>(view.nbytes));
  }
}

}  // namespace trainer
