// The project's own operators. Each is declared once and written twice: loops for the CPU, kernels for a GPU.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include "device/target_device.h"

namespace trainer {

// Appends what an observer sees of an argument or a result. A struct shows what it has of tensors().
template <class T>
void append_observed(std::vector<c10::IValue>& values, const T& value) {
  if constexpr (requires { value.tensors(); }) {
    for (const at::Tensor& tensor : value.tensors()) values.emplace_back(tensor);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    values.emplace_back(static_cast<int64_t>(value));
  } else if constexpr (std::is_constructible_v<c10::IValue, const T&>) {
    values.emplace_back(value);
  }
}
template <class T>
requires requires(const T& value) { value.tensors(); }
void append_observed(std::vector<c10::IValue>& values, const std::vector<T>& list) {
  for (const T& value : list) append_observed(values, value);
}
template <class... T>
void append_observed(std::vector<c10::IValue>& values, const std::tuple<T...>& parts) {
  std::apply([&](const T&... part) { (append_observed(values, part), ...); }, parts);
}

template <class T>
c10::Device device_of_operator(const T& argument) {
  return argument.tensors().front().device();
}
inline c10::Device device_of_operator(const at::Tensor& tensor) { return tensor.device(); }
inline c10::Device device_of_operator(at::TensorList tensors) { return tensors.front().device(); }

// An operator, `name` as "trainer::rms_norm". A call runs the form of the device on which the first argument
// is, below autograd: gradients are the caller's business. A profiler and other observers of
// at::RecordFunction see it under its name, with its arguments and results.
//
// On meta, in a memory plan, the form of the planned device runs. So each form allocates its tensors first,
// and on meta it computes nothing: the CPU's returns, the GPU's starts kernels that do nothing.
template <class Signature>
class Op;

template <class Return, class... Arguments>
class Op<Return(Arguments...)> {
 public:
  using Form = Return (*)(Arguments...);

  // An operator that only a CPU needs has no form for a GPU.
  constexpr Op(const char* name, Form cpu, Form gpu = nullptr) : name_(name), cpu_(cpu), gpu_(gpu) {}

  Return operator()(Arguments... arguments) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::Device device = device_of(arguments...);
    TORCH_CHECK(gpu_ != nullptr || target_of(device) == c10::kCPU, name_, ": only a CPU has this operator");
    const Form form = gpu_ != nullptr && runs_on_gpu(device) ? gpu_ : cpu_;
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (!callbacks) return form(std::forward<Arguments>(arguments)...);
    at::RecordFunction call(std::move(*callbacks));
    std::vector<c10::IValue> values;
    if (call.needsInputs()) (append_observed(values, arguments), ...);
    call.before(name_, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
    if constexpr (std::is_void_v<Return>) {
      form(std::forward<Arguments>(arguments)...);
    } else {
      Return result = form(std::forward<Arguments>(arguments)...);
      std::vector<c10::IValue> results;
      if (call.needsOutputs()) append_observed(results, result);
      call.setOutputs(std::move(results));
      return result;
    }
  }

 private:
  template <class First, class... Rest>
  static c10::Device device_of(const First& first, const Rest&...) {
    return device_of_operator(first);
  }

  const char* name_;
  Form cpu_, gpu_;
};

template <class Return, class... Arguments>
Op(const char*, Return (*)(Arguments...)) -> Op<Return(Arguments...)>;
template <class Return, class... Arguments>
Op(const char*, Return (*)(Arguments...), Return (*)(Arguments...)) -> Op<Return(Arguments...)>;

// Calls body.operator()<T>() with the type of x's elements, fp32 or bf16.
template <class Body>
void with_element_type(const at::Tensor& x, const char* name, const Body& body) {
  if (x.scalar_type() == at::kFloat) {
    body.template operator()<float>();
  } else {
    TORCH_CHECK(x.scalar_type() == at::kBFloat16, name, ": ", x.scalar_type(), " is not supported");
    body.template operator()<at::BFloat16>();
  }
}

}  // namespace trainer
