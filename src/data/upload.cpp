#include "data/upload.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/record_stream.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

#include "base/text.h"
#include "device/target_device.h"
#include "memory/gpu_graph.h"

namespace trainer {
namespace {

// One stream for the life of the program: memory that was allocated on a stream is reused only on that
// stream.
c10::Stream copy_stream(at::Device device) {
  thread_local std::optional<c10::Stream> stream;
  if (!stream || stream->device() != device)
    stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return *stream;
}

}  // namespace

at::Tensor page_locked_if_possible(const std::function<at::Tensor(bool locked)>& allocate,
                                   std::atomic<bool>& refused) {
  if (!refused) {
    try {
      return allocate(true);
    } catch (const c10::Error& error) {
      if (!is_oom(error)) throw;
      refused = true;
      log::warning(concat("this system gives no page-locked memory (",
                          first_line(error.what_without_backtrace()),
                          "), so batches are copied to the GPU from ordinary memory, which is slower"));
    }
  }
  return allocate(false);
}

at::Tensor empty_for_upload(at::IntArrayRef shape, at::ScalarType type, at::Device device) {
  static std::atomic<bool> refused = false;
  TORCH_CHECK(!is_recording(), "a copy from the host cannot be recorded");
  if (!device.is_cuda()) return at::empty(shape, type);
  return page_locked_if_possible(
      [&](bool locked) { return at::empty(shape, at::TensorOptions(type).pinned_memory(locked)); }, refused);
}

Upload::Upload(at::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = copy_stream(device);
}

at::Tensor Upload::operator()(const at::Tensor& host) {
  if (!stream_)
    return host.to(device_, /*non_blocking=*/target_of(device_) == c10::kCUDA);  // meta: as planned
  const c10::StreamGuard on_stream(*stream_);
  return copies_.emplace_back(host.to(device_, /*non_blocking=*/true));
}

void Upload::wait() {
  if (!stream_) return;
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  c10::Event copied(device_.type());
  copied.record(*stream_);
  copied.block(current);
  for (const at::Tensor& copy : copies_) copy.record_stream(current);
}

}  // namespace trainer
