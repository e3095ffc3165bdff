#pragma once

#include "ops/cpu_products.h"

namespace trainer {

// training.cpu_products, given back to automatic at the end.
struct CpuProductsAre {
  explicit CpuProductsAre(CpuProducts wanted) { set_cpu_products(wanted); }
  ~CpuProductsAre() { set_cpu_products(CpuProducts::automatic); }
  CpuProductsAre(const CpuProductsAre&) = delete;
  CpuProductsAre& operator=(const CpuProductsAre&) = delete;
};

}  // namespace trainer
