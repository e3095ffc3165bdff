// A frozen weight that is kept in FP8.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

#include "ops/fp8.h"

namespace trainer {

const WeightFormat& fp8_format();

// Rows are widened when they are asked for.
class Fp8Weight : public WeightSource {
 public:
  // `type`: of the values that it stands for.
  Fp8Weight(Fp8Tensor tensor, at::ScalarType type) : tensor_(std::move(tensor)), type_(type) {}

  const std::vector<int64_t>& shape() const override { return tensor_.shape; }
  at::ScalarType scalar_type() const override { return type_; }
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const override {
    return widen_fp8(tensor_, first, count, type);
  }
  at::Tensor look_up(const at::Tensor& ids, at::ScalarType type) const override;
  std::vector<at::Tensor> tensors() const override { return tensor_.tensors(); }
  std::shared_ptr<const WeightSource> with_storage(const std::vector<at::Tensor>& copies) const override;
  const WeightFormat* format() const override { return &fp8_format(); }
  std::string metadata() const override;
  std::shared_ptr<const WeightSource> with_metadata(const std::string& metadata) const override;

  const Fp8Tensor& tensor() const { return tensor_; }

 private:
  Fp8Tensor tensor_;
  at::ScalarType type_;
};

}  // namespace trainer
