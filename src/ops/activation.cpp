#include "ops/activation.h"

#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

Activation activation_named(const std::string& name, const std::string& key) {
  static const std::map<std::string, Activation> table{
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_accurate", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_python_tanh", Activation::gelu_tanh},
      {"quick_gelu", Activation::quick_gelu},
      {"relu", Activation::relu},
      {"relu2", Activation::relu2},
      {"relu6", Activation::relu6},
      {"leaky_relu", Activation::leaky_relu},
      {"tanh", Activation::tanh},
      {"sigmoid", Activation::sigmoid},
      {"mish", Activation::mish},
      {"hardswish", Activation::hardswish},
      {"linear", Activation::linear},
  };
  if (const auto found = table.find(name); found != table.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, kind] : table) names.push_back(known);
  throw FormatError(concat("config.json: ", key, ": activation '", name,
                           "' is not supported (supported: ", join(names), ")"));
}

at::Tensor activate(Activation kind, const at::Tensor& x) {
  switch (kind) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::quick_gelu:
      return x * at::sigmoid(x * 1.702);
    case Activation::relu:
      return at::relu(x);
    case Activation::relu2:
      return at::relu(x).square();
    case Activation::relu6:
      return at::relu6(x);
    case Activation::leaky_relu:
      return at::leaky_relu(x);
    case Activation::tanh:
      return at::tanh(x);
    case Activation::sigmoid:
      return at::sigmoid(x);
    case Activation::mish:
      return at::mish(x);
    case Activation::hardswish:
      return at::hardswish(x);
    case Activation::linear:
      return x;
  }
  return x;
}

}  // namespace trainer
