// A weight that is not a plain tensor, for tests: int8 codes with a scale for each row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/nn/linear.h"

#include "nn/embedding.h"

namespace trainer::test {

// Scales are powers of 2, so that the values are exact in bf16 and fp32.
class CodedWeight : public WeightSource {
 public:
  explicit CodedWeight(const at::Tensor& values) : shape_(values.sizes().vec()), type_(values.scalar_type()) {
    const at::Tensor wide = values.detach().to(at::kFloat);
    const at::Tensor largest = wide.abs().amax({1}, /*keepdim=*/true).clamp_min(1e-6);
    scales_ = at::exp2(at::ceil(at::log2(largest / 127)));
    codes_ = at::round(wide / scales_).to(at::kChar);
  }
  const std::vector<int64_t>& shape() const override { return shape_; }
  at::ScalarType scalar_type() const override { return type_; }
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const override {
    largest_panel_ = std::max(largest_panel_, count);
    return codes_.narrow(0, first, count).to(type).mul_(scales_.narrow(0, first, count));
  }
  at::Tensor look_up(const at::Tensor& ids, at::ScalarType type) const override {
    return at::embedding(codes_, ids).to(type).mul_(at::embedding(scales_, ids));
  }
  std::vector<at::Tensor> tensors() const override { return {codes_, scales_}; }
  std::shared_ptr<const WeightSource> with_storage(const std::vector<at::Tensor>& copies) const override {
    auto out = std::make_shared<CodedWeight>(*this);
    out->codes_ = copies.at(0);
    out->scales_ = copies.at(1);
    return out;
  }

  const WeightFormat* format() const override { return of_format; }

  const WeightFormat* of_format = nullptr;
  int64_t largest_panel() const { return largest_panel_; }  // rows asked for at once so far

 private:
  std::vector<int64_t> shape_;
  at::ScalarType type_;
  at::Tensor codes_, scales_;
  mutable int64_t largest_panel_ = 0;
};

// Codes in place of the frozen weights of linear layers and embeddings; or, with `dense`, the same values as
// tensors. Returns how many there are.
inline int64_t code_frozen_weights(Module& model, bool dense) {
  int64_t coded = 0;
  const auto code = [&](Parameter& parameter) {
    if (!parameter.value.defined() || parameter.trained()) return;
    const Weight weight(std::make_shared<CodedWeight>(parameter.value.tensor()));
    parameter.value = dense ? Weight(weight.materialize(weight.scalar_type())) : weight;
    coded++;
  };
  model.for_each_module([&](const std::string&, Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) code(linear->weight);
    if (auto* embedding = dynamic_cast<Embedding*>(&module)) code(embedding->weight);
  });
  return coded;
}

}  // namespace trainer::test
