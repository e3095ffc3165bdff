// The kernels of src/ops/packed_adapters.cu on an emulated GPU. For files that are compiled alone.
#pragma once

#include "support/emulated_gpu.h"

namespace packed_float {
using Element = float;
#include "ops/packed_adapters.cu"
}  // namespace packed_float
namespace packed_bf16 {
using Element = bf16;
#include "ops/packed_adapters.cu"
}  // namespace packed_bf16

namespace trainer {

class GpuOfAdapters : public emulated::Gpu {
 public:
  GpuOfAdapters() {
    add("packed_adapters.cu", "Element=float", "pack_adapters",
        emulated::Callable<packed_float::pack_adapters>::call);
    add("packed_adapters.cu", "Element=bf16", "pack_adapters",
        emulated::Callable<packed_bf16::pack_adapters>::call);
    add("packed_adapters.cu", "Element=float", "pack_all_adapters",
        emulated::Callable<packed_float::pack_all_adapters>::call);
    add("packed_adapters.cu", "Element=bf16", "pack_all_adapters",
        emulated::Callable<packed_bf16::pack_all_adapters>::call);
    add("packed_adapters.cu", "Element=float", "add_tensors",
        emulated::Callable<packed_float::add_tensors>::call);
    add("packed_adapters.cu", "Element=bf16", "add_tensors",
        emulated::Callable<packed_bf16::add_tensors>::call);
  }
};

}  // namespace trainer
