#include "run/tensor_files.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/join_some.h"
#include "base/release_pages.h"
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
