#include "parallel/shard_fetcher.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/memory_room.h"

namespace trainer {
namespace {

constexpr int64_t kNoMore = -1;

// As a flat tensor of bytes, because places have no types.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

}  // namespace

ShardFetcher::ShardFetcher(const Ranks& ranks, const TensorExchange& exchange, at::Device device,
                           std::vector<std::vector<OwnedTensor>> groups)
    : ranks_(ranks), exchange_(exchange), device_(device), groups_(std::move(groups)) {
  require_room_for_threads(1, "the weights of other ranks");
  thread_ = std::thread([this] { run(); });
}

ShardFetcher::~ShardFetcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_future<void> ShardFetcher::fetch(size_t group, std::vector<at::Tensor> places, StreamMark free) {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  Request& request = requests_.emplace_back(Request{group, std::move(places), std::move(free), {}});
  changed_.notify_all();
  return request.done.get_future().share();
}

void ShardFetcher::serve_until_all_end() {
  std::unique_lock lock(mutex_);
  serving_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !serving_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void ShardFetcher::run() {
  try {
    const at::NoGradGuard no_grad;
    if (!device_.is_cuda()) return take_turns();
    // A stream of its own, beside the device's work.
    const c10::DeviceGuard on_device(device_);
    const c10::StreamGuard on_stream(
        c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
    take_turns();
  } catch (...) {
    fail(std::current_exception());
  }
}

void ShardFetcher::fail(const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  for (Request& request : requests_) request.done.set_exception(failure);
  requests_.clear();
  changed_.notify_all();
}

void ShardFetcher::take_turns() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || serving_ || !requests_.empty(); });
    if (ending_) return;
    Request* own = requests_.empty() ? nullptr : &requests_.front();  // others are added behind it
    lock.unlock();
    const bool all_are_done = exchange_once(own);
    lock.lock();
    if (own != nullptr) {
      own->done.set_value();
      requests_.pop_front();
    }
    if (!all_are_done) continue;
    serving_ = false;
    changed_.notify_all();
  }
}

// Returns whether no rank wants any more.
bool ShardFetcher::exchange_once(const Request* own) {
  const int64_t wanted = own != nullptr ? static_cast<int64_t>(own->group) : kNoMore;
  const std::vector<std::string> notes = ranks_.all_gather(std::to_string(wanted), Channel::weights);
  if (own != nullptr) CopyStream::host_waits_for(own->free);
  std::vector<Transfer> transfers;
  bool all_are_done = true;
  for (size_t to = 0; to < notes.size(); to++) {
    const int64_t number = std::stoll(notes[to]);
    if (number == kNoMore) continue;
    all_are_done = false;
    const std::vector<OwnedTensor>& group = groups_.at(static_cast<size_t>(number));
    for (size_t i = 0; i < group.size(); i++) {
      Transfer one{{}, group[i].owner, static_cast<int64_t>(to)};
      if (one.from == one.to) continue;
      if (one.from == ranks_.rank()) one.tensor = as_bytes(group[i].tensor);
      if (one.to == ranks_.rank()) one.tensor = as_bytes(own->places.at(i));
      transfers.push_back(std::move(one));
    }
  }
  if (!transfers.empty()) exchange_.send_recv(transfers);
  return all_are_done;
}

}  // namespace trainer
