// The output head in weight files: its name, and whether it is a copy of the embedding.
#pragma once

#include <cstring>

#include "trainer/formats/safetensors.h"

namespace trainer {

inline constexpr const char* kHead = "lm_head.weight";

inline bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.nbytes) == 0;
}

}  // namespace trainer
