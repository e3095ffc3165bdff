// Queries and keys that attention's backward makes again instead of keeping them (ForwardContext::light).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/rotate_qk.h"

namespace trainer {

// The normed and rotated heads of a layer with q/k norms, whose raw heads are kept for the norms anyway.
class RemadeHeads : public std::enable_shared_from_this<RemadeHeads> {
 public:
  using Make = std::function<QkPair(const std::vector<at::Tensor>& from)>;

  // make(from) gives `heads` again: the same bits, sizes and strides. `from` has no history of autograd.
  RemadeHeads(const QkPair& heads, std::vector<at::Tensor> from, Make make);

  // For a Function that saves `from` itself.
  const std::vector<at::Tensor>& from() const { return from_; }
  const Make& make() const { return make_; }

  // `out` is the result of an attention operator of LibTorch or of causal_attention(), called with q and k or
  // views of them. From now on its node in the graph does not keep them. It keeps what it got if that is
  // something else, as a copy of q with padding, or if the operator is not known here.
  void replace_in(const at::Tensor& out);

 private:
  friend class RemadeHead;

  at::Tensor take(bool key);

  const void *q_, *k_;  // the memory of the heads, to know views of them by
  std::vector<at::Tensor> from_;
  Make make_;
  int64_t waiting_ = 0;  // saved tensors that have not been asked for
  QkPair made_;          // while some wait
};

}  // namespace trainer
