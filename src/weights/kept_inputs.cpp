#include "weights/kept_inputs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "memory/offload.h"

namespace trainer {

// Offloaded memory is dear to allocate, so what is free is used again.
struct KeptInputs::Buffers {
  // Returns the smallest free buffer with room; if none has, a new one, in place of a smaller one.
  at::Tensor take(int64_t bytes, at::Device device) {
    auto found = std::ranges::lower_bound(free, bytes, {}, [](const at::Tensor& one) { return one.numel(); });
    if (found != free.end()) {
      at::Tensor taken = std::move(*found);
      free.erase(found);
      return taken;
    }
    if (!free.empty()) free.pop_back();
    return offloaded_zeros({bytes}, at::TensorOptions(at::kByte).device(device));
  }
  void give_back(at::Tensor buffer) {
    const auto place =
        std::ranges::lower_bound(free, buffer.numel(), {}, [](const at::Tensor& one) { return one.numel(); });
    free.insert(place, std::move(buffer));
  }

  std::vector<at::Tensor> free;  // by size
};

class KeptInputs::Kept {
 public:
  Kept(std::shared_ptr<Buffers> buffers, at::Tensor buffer)
      : buffers_(std::move(buffers)), buffer_(std::move(buffer)) {}
  ~Kept() {
    CopyStream::host_waits_for(arrived);  // an abandoned copy still writes to its tensor
    buffers_->give_back(std::move(buffer_));
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  at::Tensor values;     // in the buffer
  at::Tensor on_device;  // undefined until it is on its way
  StreamMark arrived;
  std::weak_ptr<Kept> before;

 private:
  std::shared_ptr<Buffers> buffers_;
  at::Tensor buffer_;
};

KeptInputs::KeptInputs(std::shared_ptr<CopyStream> stream)
    : buffers_(std::make_shared<Buffers>()), stream_(std::move(stream)) {}

std::shared_ptr<KeptInputs::Kept> KeptInputs::keep(const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;
  const at::Tensor values = input.detach();
  const auto bytes = static_cast<int64_t>(values.nbytes());
  const at::Tensor buffer = buffers_->take(bytes, stream_->device());
  auto kept = std::make_shared<Kept>(buffers_, buffer);
  kept->values = buffer.narrow(0, 0, bytes).view(values.scalar_type()).view(values.sizes());
  kept->before = std::exchange(last_, kept);
  if (stream_->copies()) stream_->next_turn();
  stream_->after_work([&] { kept->values.copy_(values, /*non_blocking=*/true); });
  if (stream_->copies()) {
    stream_->hold(values);
  } else {
    release_offloaded(kept->values);
  }
  count_moved(bytes);
  return kept;
}

void KeptInputs::begin(Kept& kept) const {
  if (!stream_->copies()) return fetch_offloaded(kept.values);
  if (kept.on_device.defined()) return;
  kept.on_device = at::empty(kept.values.sizes(), stream_->options(kept.values.scalar_type()));
  stream_->after_work([&] { kept.on_device.copy_(kept.values, /*non_blocking=*/true); });
  kept.arrived = stream_->mark_copies();
}

at::Tensor KeptInputs::bring_back(Kept& kept) const {
  const at::NoGradGuard no_grad;
  count_moved(static_cast<int64_t>(kept.values.nbytes()));
  if (stream_->copies()) begin(kept);
  stream_->work_waits_for(std::exchange(kept.arrived, nullptr));
  if (const auto before = kept.before.lock()) begin(*before);
  return stream_->copies() ? std::exchange(kept.on_device, {}) : kept.values;
}

}  // namespace trainer
