// Which keys each query sees, by their distance, and the masks that say so.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trainer {

// How many positions before its own and after it a query sees, besides its own; -1: all.
struct Sight {
  int64_t before = -1, after = -1;
};

// These return additive masks: 0 for the keys that a query sees, -inf for others, of the type of `options`.
// `lengths` are those of the sequences, int64 [batch]; undefined: nothing is padded.

// Of `positions` to themselves, broadcastable to [batch, 1, positions, positions]; undefined if all is seen.
// A padded position sees at least itself, so that its weights are numbers.
at::Tensor seen_mask(const Sight& sight, int64_t positions, const at::Tensor& lengths,
                     const at::TensorOptions& options);

// To all positions of sources, [batch, 1, 1, positions]; undefined if nothing is padded.
at::Tensor source_mask(const at::Tensor& lengths, int64_t positions, const at::TensorOptions& options);

// To `positions` of their own and then to `source_positions` of a source of so many `lengths`, in one row of
// keys: [batch, 1, positions, positions + source_positions] or undefined.
at::Tensor merged_mask(const Sight& sight, int64_t positions, const at::Tensor& lengths,
                       int64_t source_positions, const at::TensorOptions& options);

}  // namespace trainer
