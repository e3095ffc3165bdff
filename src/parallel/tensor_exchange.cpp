#include "trainer/parallel/tensor_exchange.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/target_device.h"
#include "parallel/nccl_group.h"

namespace trainer {

// Collects pieces of tensors that have one owner and one type until the buffer is full.
class TensorExchange::Message {
 public:
  Message(const TensorExchange& exchange, Collective collective)
      : exchange_(exchange), collective_(collective) {}

  // `flat`: [n], contiguous.
  void add(const at::Tensor& flat, std::optional<int64_t> owner) {
    if (buffer_.defined() && (owner != owner_ || flat.scalar_type() != buffer_.scalar_type())) send();
    owner_ = owner;
    buffer_ = exchange_.buffer_.view(flat.scalar_type());
    const int64_t room = buffer_.numel();
    for (int64_t begin = 0; begin < flat.numel();) {
      // A large tensor in main memory needs no copy.
      const bool directly = flat.is_cpu() && used_ == 0 && flat.numel() - begin >= room;
      const int64_t count = std::min(flat.numel() - begin, room - (directly ? 0 : used_));
      const at::Tensor piece = flat.narrow(0, begin, count);
      begin += count;
      if (directly) {
        travel(piece);
        continue;
      }
      if (gives()) buffer_.narrow(0, used_, count).copy_(piece);
      pieces_.push_back(piece);
      used_ += count;
      if (used_ == room) send();
    }
  }

  void send() {
    if (used_ == 0) return;
    travel(buffer_.narrow(0, 0, used_));
    int64_t at = 0;
    for (const at::Tensor& piece : pieces_) {
      if (takes()) piece.copy_(buffer_.narrow(0, at, piece.numel()));
      at += piece.numel();
    }
    pieces_.clear();
    used_ = 0;
  }

 private:
  bool is_owner() const { return !owner_ || *owner_ == exchange_.ranks_.rank(); }
  bool gives() const { return collective_ == Collective::all_reduce || is_owner(); }
  bool takes() const { return collective_ == Collective::all_reduce ? is_owner() : !is_owner(); }

  void travel(const at::Tensor& message) const {
    if (collective_ == Collective::all_reduce) {
      exchange_.ranks_.all_reduce(message, owner_);
    } else {
      exchange_.ranks_.broadcast(*owner_, message);
    }
  }

  const TensorExchange& exchange_;
  Collective collective_;
  std::optional<int64_t> owner_;
  at::Tensor buffer_;
  std::vector<at::Tensor> pieces_;
  int64_t used_ = 0;  // elements
};

TensorExchange::TensorExchange(const Ranks& ranks, at::Device device, int64_t bytes) : ranks_(ranks) {
  if (ranks.alone() || (device.is_meta() && target_of(device) != c10::kCPU)) return;
  if (device.is_cuda()) gpus_ = NcclGroup::connect(ranks, device);
  if (gpus_) return;
  constexpr int64_t kAligned = 64;
  const int64_t size = std::min(kMessageBytes, (bytes + kAligned - 1) / kAligned * kAligned);
  const at::Device where = device.is_meta() ? device : at::Device(at::kCPU);
  buffer_ = at::empty({std::max(size, kAligned)},
                      at::TensorOptions().dtype(at::kByte).device(where).pinned_memory(device.is_cuda()));
}

TensorExchange::~TensorExchange() = default;

void TensorExchange::all_reduce(const std::vector<SharedTensor>& tensors) const {
  exchange(tensors, Collective::all_reduce);
}

void TensorExchange::broadcast(const std::vector<SharedTensor>& tensors) const {
  exchange(tensors, Collective::broadcast);
}

// After a rank was lost between GPUs, nobody waits for it on other connections, either.
template <class Work>
void TensorExchange::ended_with_lost(const Work& work) const {
  try {
    work();
  } catch (const LostRank&) {
    ranks_.give_up();
    throw;
  }
}

// Through main memory in pieces, one after the other: all ranks do so in the same order.
void TensorExchange::send_recv(const std::vector<Transfer>& tensors) const {
  if (gpus_) {
    ended_with_lost([&] { gpus_->send_recv(tensors); });
    for (const Transfer& one : tensors)
      if (one.from == ranks_.rank()) ranks_.count_given(static_cast<int64_t>(one.tensor.nbytes()));
    return;
  }
  const bool in_main_memory = std::ranges::all_of(
      tensors, [](const Transfer& one) { return !one.tensor.defined() || one.tensor.is_cpu(); });
  if (in_main_memory) return ranks_.send_recv(tensors);
  for (const Transfer& one : tensors) {
    if (!one.tensor.defined()) continue;
    for (int64_t begin = 0; begin < one.tensor.numel(); begin += buffer_.numel()) {
      const int64_t count = std::min(buffer_.numel(), one.tensor.numel() - begin);
      const at::Tensor piece = one.tensor.narrow(0, begin, count), message = buffer_.narrow(0, 0, count);
      const bool gives = one.from == ranks_.rank();
      if (gives) message.copy_(piece);
      ranks_.send_recv({{message, one.from, one.to}});
      if (!gives) piece.copy_(message);
    }
  }
}

void TensorExchange::exchange(std::vector<SharedTensor> tensors, Collective collective) const {
  if (ranks_.alone() || (!gpus_ && (!buffer_.defined() || buffer_.is_meta()))) return;
  const at::NoGradGuard no_grad;
  std::ranges::stable_sort(tensors, {}, [](const SharedTensor& shared) {
    return std::tuple(shared.owner.value_or(-1), shared.tensor.scalar_type());
  });
  std::vector<std::pair<at::Tensor, at::Tensor>> rearranged;
  for (SharedTensor& shared : tensors) {
    const at::Tensor whole = shared.tensor.detach();
    shared.tensor = whole.contiguous().view({-1});
    if (!whole.is_contiguous()) rearranged.emplace_back(whole, shared.tensor);
  }
  if (gpus_) {
    ended_with_lost([&] {
      collective == Collective::all_reduce ? gpus_->all_reduce(tensors) : gpus_->broadcast(tensors);
    });
    for (const SharedTensor& shared : tensors)
      ranks_.count_given(static_cast<int64_t>(shared.tensor.nbytes()));
  } else {
    Message message(*this, collective);
    for (const SharedTensor& shared : tensors) message.add(shared.tensor, shared.owner);
    message.send();
  }
  for (const auto& [whole, flat] : rearranged) whole.copy_(flat.view(whole.sizes()));
}

}  // namespace trainer
