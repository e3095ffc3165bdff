// Calls a template for the type of a tensor's elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

namespace trainer {

// Calls body.operator()<float or at::BFloat16>(). An undefined tensor counts as fp32.
template <class Body>
void with_type(const at::Tensor& tensor, const Body& body) {
  if (!tensor.defined() || tensor.scalar_type() == at::kFloat) {
    body.template operator()<float>();
  } else {
    TORCH_CHECK(tensor.scalar_type() == at::kBFloat16, "the update of ", tensor.scalar_type(),
                " is not supported");
    body.template operator()<at::BFloat16>();
  }
}

}  // namespace trainer
