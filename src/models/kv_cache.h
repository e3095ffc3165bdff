// The cache of generation: keys and values of the attention in one layer, or a recurrent layer's state.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "models/cache_rows.h"

namespace trainer {

// Keys and values lie where CacheRows say.
class KvCache {
 public:
  // Stores the keys and values of the rows from `first` on, whose lengths are theirs: [rows, heads, n,
  // head_dim] with padding, or packed, [1, heads, tokens, head_dim].
  void put(const CacheRows& rows, int64_t first, const at::Tensor& k, const at::Tensor& v, bool packed);
  // Returns the keys of all rows, with room for all positions; those that are not written yet hold nothing.
  // like: keys [any, heads, any, head_dim] of the same type.
  CachedKeys keys(const CacheRows& rows, const at::Tensor& like);

  // A recurrent layer has these instead, by row: the inputs of its convolution before the next token, [rows,
  // positions, columns], and its states, fp32 [rows, heads, key_dim, value_dim].
  at::Tensor tail, states;
  // Adds new rows to one of them.
  static void add_rows(at::Tensor& to, const at::Tensor& rows);
  // Continues with these rows, int64 on the device.
  void select_states(const at::Tensor& rows);

 private:
  void make_room(const CacheRows& rows, const at::Tensor& like);
  at::Tensor k_, v_;  // [slots, heads, positions, head_dim]
};

}  // namespace trainer
