// Calls the project's own operators (TORCH_LIBRARY_FRAGMENT(trainer, ...)) from autograd Functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "device/op.h"

namespace trainer {

// A handle to an operator without overloads. A call bypasses autograd and goes to the kernel of the tensors'
// device. A kernel allocates its tensors in one function for CPU and Meta, so that the memory of a step can
// be measured on `meta`.
template <class Signature>
class Operator;

template <class Return, class... Arguments>
class Operator<Return(Arguments...)> {
 public:
  explicit Operator(const char* name)
      : handle_(
            c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Return(Arguments...)>()) {
  }

  Return operator()(Arguments... arguments) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return handle_.call(arguments...);
  }

 private:
  c10::TypedOperatorHandle<Return(Arguments...)> handle_;
};

// The meta kernel of an operator whose CPU and GPU kernels allocate different tensors: `call` runs the
// target's.
template <auto cpu, auto cuda>
struct ByTarget;
template <class Return, class... Rest, Return (*cpu)(const at::Tensor&, Rest...),
          Return (*cuda)(const at::Tensor&, Rest...)>
struct ByTarget<cpu, cuda> {
  static Return call(const at::Tensor& x, Rest... rest) {
    return (target_of(x.device()) == c10::kCPU ? cpu : cuda)(x, rest...);
  }
};

}  // namespace trainer
