// Tensors for tests of Adafactor's updates.
#pragma once

#include <vector>

#include <ATen/ATen.h>

#include "trainer/optim/adafactor.h"

namespace trainer::test {

struct AdafactorTypes {
  at::ScalarType weight = at::kFloat, gradient = at::kFloat;
  std::optional<at::ScalarType> moment = std::nullopt;  // of the first moment; nullopt: none
  bool master = false;
};

inline AdafactorTensors adafactor_tensors(const std::vector<int64_t>& shape, const AdafactorTypes& types) {
  AdafactorTensors t;
  t.weight = at::randn(shape).to(types.weight);
  t.gradient = at::randn(shape).to(types.gradient);
  std::vector<int64_t> rows = shape, columns = shape;
  if (shape.size() > 1) {
    rows.pop_back();
    columns.erase(columns.end() - 2);
    t.column = at::rand(columns);
  }
  t.row = at::rand(rows);
  if (types.moment) t.exp_avg = at::randn(shape).mul_(1e-2).to(*types.moment);
  if (types.master) t.master = t.weight.to(at::kFloat);
  return t;
}

template <class Copy>
AdafactorTensors copied(const AdafactorTensors& t, const Copy& copy) {
  return {copy(t.weight), copy(t.gradient), copy(t.row), copy(t.column), copy(t.exp_avg), copy(t.master)};
}
inline AdafactorTensors cloned(const AdafactorTensors& t) {
  return copied(t, [](const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; });
}

// What an update writes.
inline std::vector<at::Tensor> written(const AdafactorTensors& t) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& tensor : {t.weight, t.row, t.column, t.exp_avg, t.master}) {
    if (tensor.defined()) out.push_back(tensor);
  }
  return out;
}

inline bool same_bits(const AdafactorTensors& a, const AdafactorTensors& b) {
  const std::vector<at::Tensor> first = written(a), second = written(b);
  for (size_t i = 0; i < first.size(); i++) {
    if (!first[i].cpu().equal(second[i].cpu())) return false;
  }
  return true;
}

inline AdafactorUpdate adafactor_update_of(uint64_t key) {
  return {.learning_rate = 1e-2,
          .keep = 0.7,
          .epsilon = 1e-30,
          .least_scale = 1e-3,
          .clip_threshold = 0.8,
          .beta1 = 0.9,
          .scale_parameter = true,
          .weight_decay = 0.1,
          .key = key};
}

// Combinations of types, and of moments and masters.
inline std::vector<AdafactorTypes> adafactor_types() {
  std::vector<AdafactorTypes> out;
  for (const at::ScalarType weight : {at::kFloat, at::kBFloat16}) {
    for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16}) {
      out.push_back({weight, gradient});
      out.push_back({weight, gradient, at::kFloat});
      out.push_back({weight, gradient, at::kBFloat16});
    }
  }
  out.push_back({at::kBFloat16, at::kBFloat16, std::nullopt, /*master=*/true});
  out.push_back({at::kBFloat16, at::kFloat, at::kFloat, /*master=*/true});
  return out;
}

// fp32 sums have another order; where that decides how bf16 is rounded, by one step of bf16.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.cpu().to(at::kDouble) - b.to(at::kDouble)).norm() / b.to(at::kDouble).norm()).item<double>();
}

}  // namespace trainer::test
