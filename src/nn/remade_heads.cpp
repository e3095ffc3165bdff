#include "nn/remade_heads.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "nn/ordered_cudnn_attention.h"

namespace trainer {
namespace {

namespace generated = torch::autograd::generated;
using torch::autograd::SavedVariable;

struct SavedHeads {
  SavedVariable *q = nullptr, *k = nullptr;
};

template <class... Nodes>
SavedHeads saved_heads(torch::autograd::Node* node) {
  SavedHeads found;
  const auto look = [&]<class Node>(Node* as) {
    if (as != nullptr) found = {&as->query_, &as->key_};
  };
  (look(dynamic_cast<Nodes*>(node)), ...);
  return found;
}

// The heads of the operators that attention() and packed_attention() call.
SavedHeads saved_heads_of(torch::autograd::Node* node) {
  return saved_heads<generated::ScaledDotProductFlashAttentionForCpuBackward0,
                     generated::ScaledDotProductFlashAttentionBackward0,
                     generated::ScaledDotProductCudnnAttentionBackward0,
                     generated::ScaledDotProductEfficientAttentionBackward0,
                     generated::FlashAttentionBackward0, CausalAttentionBackward>(node);
}

const void* memory_of(const at::Tensor& x) { return x.storage().unsafeGetStorageImpl(); }

}  // namespace

// Stands for a saved tensor, which is a view of the heads.
class RemadeHead : public torch::autograd::SavedVariableHooks {
 public:
  RemadeHead(std::shared_ptr<RemadeHeads> heads, bool key) : heads_(std::move(heads)), key_(key) {}

  void call_pack_hook(const at::Tensor& saved) override {
    sizes_ = saved.sizes().vec();
    strides_ = saved.strides().vec();
    offset_ = saved.storage_offset();
  }
  at::Tensor call_unpack_hook() override {
    const at::NoGradGuard no_grad;
    return heads_->take(key_).as_strided(sizes_, strides_, offset_);
  }

 private:
  std::shared_ptr<RemadeHeads> heads_;
  bool key_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
};

RemadeHeads::RemadeHeads(const QkPair& heads, std::vector<at::Tensor> from, Make make)
    : q_(memory_of(heads.q)), k_(memory_of(heads.k)), from_(std::move(from)), make_(std::move(make)) {}

void RemadeHeads::replace_in(const at::Tensor& out) {
  if (!out.grad_fn()) return;
  const std::shared_ptr<torch::autograd::Node> node = out.grad_fn();
  const SavedHeads saved = saved_heads_of(node.get());
  if (saved.q == nullptr) return;
  for (const auto& [variable, key] : {std::pair(saved.q, false), std::pair(saved.k, true)}) {
    if (memory_of(variable->unpack(node)) != (key ? k_ : q_)) continue;
    variable->register_hooks(std::make_unique<RemadeHead>(shared_from_this(), key));
    waiting_++;
  }
}

// Both are made at once, and dropped when the last saved tensor has been asked for.
at::Tensor RemadeHeads::take(bool key) {
  if (!made_.q.defined()) made_ = make_(from_);
  const at::Tensor taken = key ? made_.k : made_.q;
  if (--waiting_ <= 0) made_ = {};
  return taken;
}

}  // namespace trainer
