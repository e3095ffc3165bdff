#include "run/tensor_files.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/join_some.h"
#include "trainer/base/release_pages.h"
#include "trainer/base/strings.h"
#include "trainer/memory/offload.h"
#include "trainer/models/tensor_views.h"

namespace trainer {
namespace {

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
  return {file_dtype(tensor.scalar_type()), tensor.sizes().vec(), [tensor](std::ostream& out) {
            const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
            out.write(static_cast<const char*>(host.const_data_ptr()),
                      static_cast<std::streamsize>(host.nbytes()));
            release_offloaded(tensor);
          }};
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
    const TensorView& view = stored.at(name);
    const auto options = at::TensorOptions().dtype(scalar_type(view.dtype));
    place.detach().copy_(at::from_blob(view.data, view.shape, options));
    release_pages(view.data, static_cast<int64_t>(view.nbytes));
  }
}

}  // namespace trainer
