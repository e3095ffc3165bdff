// Keys and values of one attention of one layer while generating.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

struct LayerCache {
  at::Tensor k, v;  // [batch, kv_heads, positions, head_dim]
};

}  // namespace trainer
