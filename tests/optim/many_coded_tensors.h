// Tensors of an update of 8-bit AdamW.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/optim/adamw_8bit.h"

namespace trainer::test {

// Before its first update.
inline Adamw8bitTensors coded_tensors(const at::Tensor& weight, const at::Tensor& gradient) {
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType type) {
    return at::zeros(shape, weight.options().dtype(type));
  };
  const int64_t blocks = adamw_8bit_blocks(weight.numel());
  return {weight,
          gradient,
          zeros(weight.sizes(), at::kByte),
          zeros(weight.sizes(), at::kByte),
          zeros({blocks}, at::kFloat),
          zeros({blocks}, at::kFloat),
          {}};
}

// What an update writes.
inline std::vector<at::Tensor> members(const Adamw8bitTensors& t) {
  std::vector<at::Tensor> out{t.weight, t.exp_avg, t.exp_avg_sq, t.exp_avg_absmax, t.exp_avg_sq_absmax};
  if (t.master.defined()) out.push_back(t.master);
  return out;
}

// Of what it writes; the gradient is the same tensor.
template <class Copy>
Adamw8bitTensors copy_of(Adamw8bitTensors t, const Copy& copy) {
  for (at::Tensor* tensor :
       {&t.weight, &t.exp_avg, &t.exp_avg_sq, &t.exp_avg_absmax, &t.exp_avg_sq_absmax, &t.master}) {
    if (tensor->defined()) *tensor = copy(*tensor);
  }
  return t;
}
inline Adamw8bitTensors copy_of(const Adamw8bitTensors& t) {
  return copy_of(t, [](const at::Tensor& tensor) { return tensor.clone(); });
}

// A product and a sum are one rounding or two. Where that decides, a code is the next one, and a bf16 weight
// one step away.
inline void expect_close(const Adamw8bitTensors& ours, const Adamw8bitTensors& expected) {
  const std::vector<at::Tensor> a = members(ours), b = members(expected);
  for (size_t i = 0; i < a.size(); i++) {
    const at::Tensor one = a[i].cpu();
    if (one.numel() == 0) continue;
    const int64_t count = one.numel(), differ = one.ne(b[i]).sum().item<int64_t>();
    if (one.scalar_type() == at::kByte) {
      EXPECT_LE((one.to(at::kInt) - b[i].to(at::kInt)).abs().max().item<int>(), 1) << i;
      EXPECT_LE(differ, count / 500) << i;
      continue;
    }
    const bool bf16 = one.scalar_type() == at::kBFloat16;
    EXPECT_LE((one - b[i]).norm().item<double>(), (bf16 ? 1e-3 : 1e-5) * b[i].norm().item<double>()) << i;
    if (bf16) {
      EXPECT_LE(differ, count / 100) << i;
    }
  }
}

}  // namespace trainer::test
