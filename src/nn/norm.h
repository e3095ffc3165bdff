// Root mean square normalisation (Zhang and Sennrich 2019), as T5LayerNorm, LlamaRMSNorm and Gemma3RMSNorm
// compute it.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "trainer/weights/module.h"

namespace trainer {

// The factor of the normalised value. The rounding differs too, as in transformers.
enum class NormScale {
  weight,           // rounded to x's type, then times the weight
  one_plus_weight,  // times 1 + weight in fp32, then rounded (Gemma)
};

struct NormFacts {
  double epsilon = 1e-6;
  NormScale scale = NormScale::weight;
};

// Returns x / rms over the last dimension, rounded to x's type: a norm without weights. Differentiable.
// `ones`: in x's type, one for each value of a row or more.
at::Tensor norm_without_weight(const at::Tensor& x, const at::Tensor& ones, double epsilon);

class RmsNorm : public Module {
 public:
  RmsNorm(int64_t size, const NormFacts& facts);
  RmsNorm(int64_t size, double epsilon) : RmsNorm(size, NormFacts{epsilon, NormScale::weight}) {}
  // Takes x [..., size]; returns the same shape and type. The variance is computed in fp32.
  at::Tensor forward(const at::Tensor& x) const;
  // Returns h = x + dropout(y) and forward(h), for x and y [..., size]. row_keys, key and p are dropout()'s
  // (dropout.h); without dropout p is 0 and row_keys may be undefined. This is one pass over the rows.
  std::pair<at::Tensor, at::Tensor> after_sum(const at::Tensor& x, const at::Tensor& y,
                                              const at::Tensor& row_keys, uint64_t key, double p) const;

  const NormFacts& facts() const { return facts_; }

  Parameter weight;  // [size]

 private:
  NormFacts facts_;
};

}  // namespace trainer
