#include "ops/cpu_products.h"

#include <atomic>

#include "gemm/products.h"

namespace trainer {
namespace {

std::atomic<CpuProducts> wanted_products{CpuProducts::automatic};

CpuProducts fastest_here() {
#if defined(__x86_64__)
  // Measured on Zen 3, Zen 4 and an Intel Xeon of family 6, model 207 (docs/performance.md). Where Intel's
  // system does not allow AMX, LibTorch's libraries do not use it either.
  if (__builtin_cpu_is("amd")) return CpuProducts::builtin;
  return builtin_types().amx ? CpuProducts::by_type : CpuProducts::mkl;
#else
  return CpuProducts::by_type;
#endif
}

}  // namespace

void set_cpu_products(CpuProducts wanted) { wanted_products = wanted; }

CpuProducts cpu_products() {
  static const CpuProducts fastest = fastest_here();
  const CpuProducts wanted = wanted_products, chosen = wanted == CpuProducts::automatic ? fastest : wanted;
  return chosen == CpuProducts::builtin && !builtin_types().fp32 ? CpuProducts::mkl : chosen;
}

bool multiplies_builtin(at::ScalarType type) {
  switch (cpu_products()) {
    case CpuProducts::builtin:
      return type == at::kBFloat16 ? builtin_types().bf16 : type == at::kFloat;
    case CpuProducts::by_type:
      return type == at::kBFloat16 && builtin_types().amx;
    default:
      return false;
  }
}

bool widens_bf16() {
  const CpuProducts products = cpu_products();
  return products == CpuProducts::mkl || (products == CpuProducts::builtin && !builtin_types().bf16);
}

std::string describe_cpu_products() {
  switch (cpu_products()) {
    case CpuProducts::mkl:
      return "fp32 by MKL, bf16 as fp32";
    case CpuProducts::builtin:
      return builtin_types().bf16 ? "fp32 and bf16 by trainer" : "fp32 by trainer, bf16 as fp32";
    case CpuProducts::onednn:
      return "fp32 and bf16 by oneDNN";
    default:
      return builtin_types().amx ? "fp32 by MKL, bf16 by trainer" : "fp32 by MKL, bf16 by oneDNN";
  }
}

}  // namespace trainer
