// A frozen weight that is kept in NF4.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

#include "ops/nf4.h"

namespace trainer {

const WeightFormat& nf4_format();

// Rows are dequantised when they are asked for: on the CPU by a vectorised loop, on a GPU by
// nf4.cu.
class Nf4Weight : public WeightSource {
 public:
  // `type`: of the values that it stands for.
  Nf4Weight(Nf4Tensor tensor, at::ScalarType type) : tensor_(std::move(tensor)), type_(type) {}

  const std::vector<int64_t>& shape() const override { return tensor_.shape; }
  at::ScalarType scalar_type() const override { return type_; }
  at::Tensor rows(int64_t first, int64_t count, at::ScalarType type) const override;
  at::Tensor look_up(const at::Tensor& ids, at::ScalarType type) const override;
  std::vector<at::Tensor> tensors() const override;
  std::shared_ptr<const WeightSource> with_storage(const std::vector<at::Tensor>& copies) const override;
  const WeightFormat* format() const override;
  std::string metadata() const override;
  std::shared_ptr<const WeightSource> with_metadata(const std::string& metadata) const override;

  const Nf4Tensor& tensor() const { return tensor_; }

 private:
  Nf4Tensor tensor_;
  at::ScalarType type_;
};

}  // namespace trainer
