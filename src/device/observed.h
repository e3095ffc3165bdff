// Kernels that are started outside of an Op (device/op.h), as an operator for observers of
// at::RecordFunction: profilers, and the counting of launches.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

namespace trainer {

// Calls `work` as the operator `name`. tensors() returns what it reads and writes, a tensor that is read and
// written twice; it is called only if somebody observes.
template <class Tensors, class Work>
void observed(const char* name, const Tensors& tensors, const Work& work) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (!callbacks) return work();
  at::RecordFunction call(std::move(*callbacks));
  std::vector<c10::IValue> values;
  for (const at::Tensor& tensor : tensors()) values.emplace_back(tensor);
  call.before(name, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
  work();
}

}  // namespace trainer
