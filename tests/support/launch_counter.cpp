#include "support/launch_counter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include "device/kernels.h"

namespace trainer {
namespace {

// Launches of LibTorch's operators on CUDA that are not one each, from its sources (2.11: native/cuda,
// native/transformers/cuda).
struct Known {
  const char* name;
  int64_t launches;
  bool attention = false;
};
constexpr Known kKnown[] = {
    {"aten::_scaled_dot_product_flash_attention", 1, true},
    {"aten::_scaled_dot_product_flash_attention_backward", 3, true},  // row sums, the gradients, gq to bf16
    {"aten::_flash_attention_forward", 1, true},
    {"aten::_flash_attention_backward", 3, true},
    {"aten::_scaled_dot_product_efficient_attention", 1, true},
    {"aten::_scaled_dot_product_efficient_attention_backward", 2, true},
    {"aten::embedding_dense_backward", 6},  // sorts the ids, finds equal ones, sums in two passes
    {"aten::record_stream", 0},
    {"aten::resize_", 0},
    {"aten::set_", 0},
    {"aten::is_same_size", 0},
    {"aten::is_pinned", 0},
    {"aten::pin_memory", 0},
    {"aten::_local_scalar_dense", 0},
};
constexpr auto kProductInFp8 = "trainer::fp8_product";
constexpr const char* kProducts[] = {"aten::mm",     "aten::addmm",  "aten::bmm",  "aten::baddbmm",
                                     "aten::addmm_", "aten::mm.out", kProductInFp8};

const Known* known(const std::string& name) {
  const auto* found = std::ranges::find_if(kKnown, [&](const Known& one) { return name == one.name; });
  return found == std::end(kKnown) ? nullptr : found;
}

bool is_product(const std::string& name) {
  return std::ranges::any_of(kProducts, [&](const char* product) { return name == product; });
}

bool makes_a_view(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& value) {
    return value.alias_info() != nullptr && !value.alias_info()->isWrite();
  });
}

// A view that repeats its storage reads the storage once.
int64_t bytes_of(const c10::IValue& value) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto storage = static_cast<int64_t>(tensor.storage().nbytes());
    bytes += std::min(storage, tensor.numel() * static_cast<int64_t>(tensor.element_size()));
  };
  if (value.isTensor()) add(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  }
  return bytes;
}

bool is_our_attention(const std::string& name) { return name.starts_with("trainer::t5_attention"); }

// How many samples lie in the row of T5AttentionInputs; they are taken to be alike. 1: rows of a batch.
int64_t packed_samples(c10::ArrayRef<const c10::IValue> inputs) {
  constexpr size_t kQueryStarts = 4;
  const at::Tensor starts = inputs[kQueryStarts].toTensor();
  return starts.defined() ? std::max<int64_t>(starts.numel() - 1, 1) : 1;
}

// Of the kernels of the gated delta rule, for each token, value head and number of the head: matrices of a
// chunk that they read or write besides the operator's arguments and results, and products of a chunk's pairs
// and with its states (src/ops/gated_delta.cu, gated_delta_backward.cu).
struct DeltaRule {
  DeltaRule(const std::string& name, c10::ArrayRef<const c10::IValue> inputs)
      : backward(name.ends_with("_backward")) {
    const size_t first = backward ? 1 : 0;  // grad comes before them
    const at::Tensor qkv = inputs[first].toTensor(), decay = inputs[first + 1].toTensor();
    all = static_cast<double>(decay.numel()) * kDim;
    bytes_of_number = static_cast<int64_t>(qkv.element_size());
  }
  double operations() const {
    return all * 2.0 * (backward ? 14 * kChunk + 8 * kDim : 5 * kChunk + 3 * kDim);
  }
  int64_t bytes() const {
    const int64_t matrices = backward ? 30 + 4 * kDim / kChunk : 8 + 2 * kDim / kChunk;
    return static_cast<int64_t>(all) * bytes_of_number * matrices;
  }

  static constexpr int64_t kDim = 128, kChunk = 64;  // heads of all Qwen3.5
  bool backward;
  double all = 0;
  int64_t bytes_of_number = 0;
};
bool is_delta_rule(const std::string& name) { return name.starts_with("trainer::gated_delta"); }

// Multiplications and additions of a product, attention or the gated delta rule; 0 for all others.
double operations_of(const std::string& name, c10::ArrayRef<const c10::IValue> inputs) {
  const Known* one = known(name);
  const bool ours = is_our_attention(name), attends = ours || (one != nullptr && one->attention),
             backward = name.ends_with("_backward");
  if (attends) {
    // [B, H, S, K]; LibTorch's take grad first. Of as many queries as keys, half of the pairs are hidden
    // there.
    const size_t first = backward && !ours ? 1 : 0;
    const at::Tensor q = inputs[first].toTensor(), k = inputs[first + 1].toTensor();
    const bool causal = !ours && q.size(2) == k.size(2);
    const double forward = 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(2)) /
                           (ours ? packed_samples(inputs) : 1);
    return forward * (causal ? 0.5 : 1.0) * (backward ? 2.5 : 1.0);
  }
  if (is_delta_rule(name)) return DeltaRule(name, inputs).operations();
  if (!is_product(name)) return 0;
  if (name == kProductInFp8) {  // codes and scales of x, then of y; in half the time of bf16
    const at::Tensor x = inputs[0].toTensor(), y = inputs[2].toTensor();
    return static_cast<double>(x.numel()) * static_cast<double>(y.size(0));
  }
  const size_t first = name.find("add") == std::string::npos ? 0 : 1;
  const at::Tensor x = inputs[first].toTensor(), y = inputs[first + 1].toTensor();
  return 2.0 * static_cast<double>(x.numel()) * static_cast<double>(y.size(-1));
}

bool is_ours(const std::string& name) { return name.starts_with("trainer::"); }

struct Call : at::ObserverContext {
  std::string name;
  bool has_calls_within = false;
  bool is_known = false;   // counts for all calls within it
  bool has_bytes = false;  // its bytes stand for those of all calls within it
  bool blocking_copy = false;
  bool is_libtorchs = false;
  int64_t bytes = 0;  // of its inputs
  double operations = 0;
};

thread_local std::vector<Call*> calls;
StepLaunches* counted = nullptr;

LaunchCounts& current() { return torch::autograd::get_current_node() ? counted->backward : counted->forward; }

bool within(bool Call::*kind) {
  return std::ranges::any_of(calls, [&](const Call* call) { return call->*kind; });
}

// copy_(to, from, non_blocking)
bool is_blocking_copy(const std::string& name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name != "aten::copy_" || !inputs[0].isTensor() || !inputs[1].isTensor()) return false;
  const bool upload = inputs[0].toTensor().is_meta() && inputs[1].toTensor().is_cpu();
  return upload && !inputs[2].toBool();
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  auto call = std::make_unique<Call>();
  if (!calls.empty()) calls.back()->has_calls_within = true;
  const std::string name = call->name = function.name();
  for (const c10::IValue& input : function.inputs()) call->bytes += bytes_of(input);
  if (is_delta_rule(name)) call->bytes += DeltaRule(name, function.inputs()).bytes();
  call->blocking_copy = is_blocking_copy(name, function.inputs());
  call->is_libtorchs = name.starts_with("aten::");
  call->is_known = known(name) != nullptr;
  call->operations = operations_of(name, function.inputs());
  call->has_bytes = call->is_known || is_ours(name) || is_product(name);
  calls.push_back(call.get());
  return call;
}

// Returns the launches of a call that is no product.
int64_t launches_of(const at::RecordFunction& function, const Call& call, int64_t bytes) {
  const std::string name = function.name();
  if (const Known* one = known(name)) return one->launches;
  const auto schema = function.operator_schema();
  // The kernels of our operators report themselves.
  const bool works =
      schema && !is_ours(name) && !makes_a_view(*schema) && !name.starts_with("aten::empty") && bytes > 0;
  return works && !call.has_calls_within ? 1 : 0;
}

void count_for_host(const at::RecordFunction& function, const Call& call) {
  LaunchCounts& counts = current();
  counts.nodes += call.name.starts_with("autograd::engine::evaluate_function") ? 1 : 0;
  if (!call.is_libtorchs || within(&Call::is_libtorchs)) return;
  const auto schema = function.operator_schema();
  counts.views += schema && makes_a_view(*schema) ? 1 : 0;
  counts.allocations += call.name.starts_with("aten::empty") ? 1 : 0;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  const Call& call = *static_cast<Call*>(context);
  calls.pop_back();
  if (counted == nullptr) return;
  count_for_host(function, call);
  if (within(&Call::is_known)) return;
  const std::string name = function.name();
  int64_t bytes = call.bytes;
  for (const c10::IValue& output : function.outputs()) bytes += bytes_of(output);
  const bool product = is_product(name);
  const int64_t launches = product ? 1 : launches_of(function, call, bytes);
  LaunchCounts& counts = current();
  if (is_ours(name)) {
    OperatorCounts& of_it = counts.operators[name];
    of_it.calls++;
    of_it.bytes += bytes;
  }
  if ((launches > 0 || call.has_bytes) && !within(&Call::has_bytes)) {
    counts.bytes += bytes;
    for (size_t i = 0; i < kCards.size(); i++) {
      const bool attends = call.is_known || is_our_attention(name) || is_delta_rule(name);
      const double rate = attends ? kCards[i].attention : kCards[i].products;
      counts.seconds[i] += std::max(call.operations / rate, static_cast<double>(bytes) / kCards[i].bytes);
    }
  }
  if (launches == 0) return;
  (product ? counts.products : counts.others) += launches;
  counts.by_name[name] += launches;
  if (const Known* one = known(name); one != nullptr && one->attention) counts.attention += launches;
  counts.blocking_copies += call.blocking_copy ? 1 : 0;
}

class Counting : public Kernels {
 protected:
  void launch(const char* function, const KernelGrid&, std::span<const KernelArgument>) const override {
    if (counted == nullptr) return;
    LaunchCounts& counts = current();
    counts.others++;
    counts.by_name[function]++;
    const auto within = std::ranges::find_if(calls, [](const Call* call) { return is_ours(call->name); });
    if (within != calls.end()) counts.operators[(*within)->name].kernels.insert(function);
  }
};

}  // namespace

LaunchCounts& LaunchCounts::operator+=(const LaunchCounts& more) {
  products += more.products;
  others += more.others;
  attention += more.attention;
  blocking_copies += more.blocking_copies;
  views += more.views;
  allocations += more.allocations;
  nodes += more.nodes;
  bytes += more.bytes;
  for (size_t i = 0; i < kCards.size(); i++) seconds[i] += more.seconds[i];
  for (const auto& [name, count] : more.by_name) by_name[name] += count;
  for (const auto& [name, more_of_it] : more.operators) {
    OperatorCounts& of_it = operators[name];
    of_it.calls += more_of_it.calls;
    of_it.bytes += more_of_it.bytes;
    of_it.kernels.insert(more_of_it.kernels.begin(), more_of_it.kernels.end());
  }
  return *this;
}

LaunchCounts LaunchCounts::per_layer(const LaunchCounts& fewer, int64_t layers) const {
  LaunchCounts out;
  out.products = (products - fewer.products) / layers;
  out.others = (others - fewer.others) / layers;
  out.attention = (attention - fewer.attention) / layers;
  out.blocking_copies = (blocking_copies - fewer.blocking_copies) / layers;
  out.views = (views - fewer.views) / layers;
  out.allocations = (allocations - fewer.allocations) / layers;
  out.nodes = (nodes - fewer.nodes) / layers;
  out.bytes = (bytes - fewer.bytes) / layers;
  for (size_t i = 0; i < kCards.size(); i++)
    out.seconds[i] = (seconds[i] - fewer.seconds[i]) / static_cast<double>(layers);
  for (const auto& [name, count] : by_name) {
    const auto before = fewer.by_name.find(name);
    const int64_t more = count - (before == fewer.by_name.end() ? 0 : before->second);
    if (more != 0) out.by_name[name] = more / layers;
  }
  return out;
}

struct LaunchCounter::Callbacks {
  StepLaunches launches;
  at::CallbackHandle handle = 0;
};

LaunchCounter::LaunchCounter() : callbacks_(std::make_unique<Callbacks>()) {
  static const Counting counting;
  counted = &callbacks_->launches;
  set_kernels_for_meta([](const KernelFile&, const std::string&) { return &counting; });
  callbacks_->handle = at::addThreadLocalCallback(at::RecordFunctionCallback(enter, leave)
                                                      .needsInputs(true)
                                                      .needsOutputs(true)
                                                      .scopes({at::RecordScope::FUNCTION}));
}

LaunchCounter::~LaunchCounter() {
  at::removeCallback(callbacks_->handle);
  set_kernels_for_meta({});
  counted = nullptr;
}

StepLaunches LaunchCounter::take() { return std::exchange(callbacks_->launches, {}); }

}  // namespace trainer
