#include "weights/block_buffer.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace trainer {
namespace {

// LibTorch's GPU allocator aligns tensors so.
int64_t aligned_in_buffer(int64_t bytes) {
  constexpr int64_t alignment = 512;
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

int64_t bytes_in_buffer(const Weight& weight) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : weight.tensors())
    sum += aligned_in_buffer(static_cast<int64_t>(tensor.nbytes()));
  return sum;
}

at::Tensor place_in_buffer(const at::Tensor& buffer, const at::Tensor& tensor, int64_t& offset) {
  const at::AutoDispatchBelowADInplaceOrView plain;
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  const at::Tensor place = buffer.narrow(0, offset, bytes).view(tensor.scalar_type()).view(tensor.sizes());
  offset += aligned_in_buffer(bytes);
  return place;
}

}  // namespace trainer
