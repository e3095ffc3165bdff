// The update of one tensor on a GPU: kernels/adamw.cu.
#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/device/kernels.h"
#include "trainer/optim/adamw.h"

#include "optim/adamw_coefficients.h"

namespace trainer {

namespace kernel_files {
extern const KernelFile adamw;
}

namespace {

constexpr int64_t kWidth = 4;  // elements per thread, if size and alignment allow it

bool is_whole(const at::Tensor& tensor) {
  return !tensor.defined() || reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

const char* element_of(const at::Tensor& tensor) {
  const bool fp32 = tensor.scalar_type() == at::kFloat;
  TORCH_CHECK(fp32 || tensor.scalar_type() == at::kBFloat16, "adamw: ", tensor.scalar_type(),
              " is not supported");
  return fp32 ? "float" : "bf16";
}

}  // namespace

void adamw_update_gpu(const AdamwTensors& tensors, const at::Tensor& gradient_scale,
                      const AdamwUpdate& update, AdamwProgress& progress) {
  const AdamwTensors& t = tensors;
  const at::Tensor gradient = t.gradient.contiguous();  // the only allocation
  const int64_t count = t.weight.numel();
  bool whole = count % kWidth == 0;
  for (const at::Tensor& one : {t.weight, gradient, t.exp_avg, t.exp_avg_sq, t.master}) {
    whole = whole && is_whole(one);
  }
  const int64_t width = whole ? kWidth : 1;
  const Kernels* kernels =
      find_kernels(t.weight.device(), kernel_files::adamw,
                   concat("Weight=", element_of(t.weight), " Gradient=", element_of(gradient),
                          " State=", element_of(t.exp_avg), " kWidth=", width));
  if (kernels == nullptr) return adamw_update_composite(tensors, gradient_scale, update, progress);
  if (progress.rehearsal) return;
  constexpr int64_t threads = 256;
  const KernelGrid grid{(count / width + threads - 1) / threads, 1, threads};
  void* const master = t.master.defined() ? t.master.mutable_data_ptr() : nullptr;
  kernels->start("adamw_update", grid, t.weight.mutable_data_ptr(), gradient.const_data_ptr(),
                 t.exp_avg.mutable_data_ptr(), t.exp_avg_sq.mutable_data_ptr(), master,
                 gradient_scale.const_data_ptr(), Coefficients(update), update.key, count);
}

}  // namespace trainer
