// What multiplies matrices on the CPU, LibTorch's two libraries or this program's kernels, and in which type
// bf16 is multiplied.
//
// Each processor has its fastest (docs/performance.md). The choice depends on the processor and the
// configuration alone, never on a measurement, so that a run that resumes on its machine has the same bits.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "trainer/config/config.h"

namespace trainer {

// Sets training.cpu_products for this process; it begins with `automatic`. Call before the first product.
void set_cpu_products(CpuProducts wanted);

// Returns what multiplies on this processor: CpuProducts::mkl, onednn, by_type or builtin, never automatic.
CpuProducts cpu_products();

// Returns that in words, as "fp32 by MKL, bf16 by oneDNN".
std::string describe_cpu_products();

// Returns whether this program's kernels multiply matrices of this type.
bool multiplies_builtin(at::ScalarType type);

// Returns whether bf16 is multiplied in fp32.
bool widens_bf16();

}  // namespace trainer
