#include "trainer/nn/cpu_products.h"

#include <atomic>

#include "nn/product_tiles.h"

namespace trainer {
namespace {

std::atomic<CpuProducts> wanted_products{CpuProducts::automatic};

CpuProducts fastest_here() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd")) {
    // Measured on Zen 3 and Zen 4 (docs/performance.md).
    return CpuProducts::builtin;
  }
  // Intel's bf16 dot products before AMX run at half the rate of fp32.
  return __builtin_cpu_supports("amx-bf16") ? CpuProducts::by_type : CpuProducts::mkl;
#else
  return CpuProducts::by_type;
#endif
}

}  // namespace

void set_cpu_products(CpuProducts wanted) { wanted_products = wanted; }

CpuProducts cpu_products() {
  static const CpuProducts fastest = fastest_here();
  const CpuProducts wanted = wanted_products, chosen = wanted == CpuProducts::automatic ? fastest : wanted;
  return chosen == CpuProducts::builtin && !fp32_tiles() ? CpuProducts::mkl : chosen;
}

bool widens_bf16() {
  const CpuProducts products = cpu_products();
  return products == CpuProducts::mkl || (products == CpuProducts::builtin && !bf16_tiles());
}

std::string describe_cpu_products() {
  switch (cpu_products()) {
    case CpuProducts::mkl:
      return "fp32 by MKL, bf16 as fp32";
    case CpuProducts::builtin:
      return bf16_tiles() ? "fp32 and bf16 by trainer" : "fp32 by trainer, bf16 as fp32";
    case CpuProducts::onednn:
      return "fp32 and bf16 by oneDNN";
    default:
      return "fp32 by MKL, bf16 by oneDNN";
  }
}

}  // namespace trainer
