#include "ops/activation.h"

#include <map>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "device/op.h"
#include "ops/kernels.h"
#include "ops/plain_view.h"
#include "ops/side_by_side.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The number that the kernels use for an activation.
int number_of_activation(int64_t kind) {
  switch (static_cast<Activation>(kind)) {
    case Activation::silu:
      return 0;
    case Activation::gelu:
      return 1;
    case Activation::gelu_tanh:
      return 2;
    case Activation::relu:
      return 3;
    default:
      TORCH_CHECK(false, "gated_activation: no kernel for activation ", kind);
  }
}

// As activation.cu has it.
struct GatedRows {
  long long cols, gate_stride, up_stride, to_gate_stride, to_up_stride;
};

// x as a matrix of rows whose elements are next to each other; a view if x is, as a slice of columns is.
at::Tensor as_rows(const at::Tensor& x) {
  if (x.dim() < 2 || x.stride(-1) != 1) return x.contiguous().view({-1, x.size(-1)});
  return as_matrix(x);
}

struct GatedInputs {
  GatedInputs(const at::Tensor& gate_, const at::Tensor& up_)
      : gate(as_rows(gate_)),
        up(as_rows(up_)),
        rows{gate.size(1), gate.stride(0), up.stride(0), gate.size(1), gate.size(1)} {}
  // Calls body(gate, up, first element, elements) for the parts whose threads fit into 32 bits.
  template <class Body>
  void for_parts(int64_t width, const Body& body) const {
    const void *a = elements(gate, gate), *b = elements(up, gate);
    for_rows_that_fit(gate.size(0), rows.cols / width, [&](int64_t first, int64_t count) {
      body(element_at(a, gate, first * rows.gate_stride), element_at(b, gate, first * rows.up_stride),
           first * rows.cols, count * rows.cols);
    });
  }

  at::Tensor gate, up;
  GatedRows rows;
};

at::Tensor gated_activation_gpu(const at::Tensor& gate, const at::Tensor& up, int64_t kind) {
  TORCH_CHECK(gate.sizes() == up.sizes(), "gated_activation: gate and up of different shapes");
  const GatedInputs in(gate, up);
  const int64_t width = width_for(in.rows.cols, {in.gate, in.up}, {in.rows.gate_stride, in.rows.up_stride});
  const Kernels& kernels = kernels_for(in.gate, "activation", width);
  at::Tensor out = at::empty(gate.sizes(), gate.options());
  in.for_parts(width, [&](const void* a, const void* b, int64_t first, int64_t count) {
    kernels.start("gated_forward", grid_of(count / width), a, b,
                  element_at(out.mutable_data_ptr(), out, first), count, in.rows, number_of_activation(kind));
  });
  return out;
}

// The results may be what is read: a thread writes where it has read.
void gated_activation_backward_gpu(const at::Tensor& grad, const at::Tensor& gate, const at::Tensor& up,
                                   int64_t kind, const at::Tensor& g_gate, const at::Tensor& g_up) {
  const at::Tensor g = grad.contiguous();
  GatedInputs in(gate, up);
  const at::Tensor to_gate = as_rows(g_gate), to_up = as_rows(g_up);
  in.rows.to_gate_stride = to_gate.stride(0);
  in.rows.to_up_stride = to_up.stride(0);
  const int64_t width =
      width_for(in.rows.cols, {g, in.gate, in.up, to_gate, to_up},
                {in.rows.gate_stride, in.rows.up_stride, to_gate.stride(0), to_up.stride(0)});
  const Kernels& kernels = kernels_for(in.gate, "activation", width);
  in.for_parts(width, [&](const void* a, const void* b, int64_t first, int64_t count) {
    const int64_t row = first / in.rows.cols;
    kernels.start("gated_backward", grid_of(count / width), element_at(elements(g, in.gate), g, first), a, b,
                  element_at(to_gate.mutable_data_ptr(), g, row * to_gate.stride(0)),
                  element_at(to_up.mutable_data_ptr(), g, row * to_up.stride(0)), count, in.rows,
                  number_of_activation(kind));
  });
}

constexpr Op kGatedActivation{"trainer::gated_activation", gated_activation_cpu, gated_activation_gpu};
constexpr Op kGatedActivationBackward{"trainer::gated_activation_backward", gated_activation_backward_cpu,
                                      gated_activation_backward_gpu};

// Returns whether nothing but `x` holds its memory, which is laid out as that of a new tensor. A view keeps
// the tensor that it is a view of.
bool only_holder(const at::Tensor& x) {
  if (x.use_count() != 1 || !x.is_contiguous()) return false;
  return x.storage().use_count() == (x.is_view() && x._base().use_count() == 1 ? 2 : 1);
}

// Returns whether gate and up are columns of one matrix that nothing else uses: the graph holds each of them,
// and so does its backward pass, which runs once.
bool only_holders(const at::Tensor& gate, const at::Tensor& up) {
  if (!side_by_side({gate, up})) return false;
  std::set<const void*> holders;
  for (const at::Tensor* x : {&gate, &up}) {
    if (x->use_count() != 2) return false;
    holders.insert(x->unsafeGetTensorImpl());
    if (!x->is_view()) continue;
    const int64_t views = gate.is_view() && up.is_view() && gate._base().is_same(up._base()) ? 2 : 1;
    if (static_cast<int64_t>(x->_base().use_count()) != views) return false;
    holders.insert(x->_base().unsafeGetTensorImpl());
  }
  return gate.storage().use_count() == holders.size();
}

// Keeps gate and up, which are the projections' results; plain autograd also keeps the activated gate. On a
// GPU their gradients take their place, so that they are columns of one matrix as well.
struct GatedActivation : torch::autograd::Function<GatedActivation> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up,
                            int64_t kind) {
    ctx->save_for_backward({gate, up});
    ctx->saved_data["kind"] = kind;
    return gated_apply(gate, up, kind);
  }
  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const int64_t kind = ctx->saved_data["kind"].toInt();
    if (runs_on_gpu(gate.device()) && only_holders(gate, up)) {
      kGatedActivationBackward(grads[0], gate, up, kind, gate, up);
      return {gate.detach(), up.detach(), {}};
    }
    const auto [g_gate, g_up] = gated_backward(std::move(grads[0]), gate, up, kind);
    return {g_gate, g_up, {}};
  }
};

}  // namespace

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

bool has_gated_kernel(Activation kind) {
  return kind == Activation::silu || kind == Activation::gelu || kind == Activation::gelu_tanh ||
         kind == Activation::relu;
}

at::Tensor gated_apply(const at::Tensor& gate, const at::Tensor& up, int64_t kind) {
  return kGatedActivation(gate, up, kind);
}

std::tuple<at::Tensor, at::Tensor> gated_backward(at::Tensor grad, const at::Tensor& gate,
                                                  const at::Tensor& up, int64_t kind) {
  const at::Tensor g_up = only_holder(grad) ? grad : at::empty(up.sizes(), up.options());
  const at::Tensor g_gate = at::empty(gate.sizes(), gate.options());
  kGatedActivationBackward(grad, gate, up, kind, g_gate, g_up);
  return {g_gate, g_up};
}

at::Tensor gated_activation(Activation kind, const at::Tensor& gate, const at::Tensor& up) {
  if (!has_gated_kernel(kind)) return activate(kind, gate) * up;
  return GatedActivation::apply(gate, up, static_cast<int64_t>(kind));
}

}  // namespace trainer
