#include "data/upload.h"

#include <ATen/ops/record_stream.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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

Upload::Upload(at::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = copy_stream(device);
}

at::Tensor Upload::operator()(const at::Tensor& host) {
  if (!stream_) return host.to(device_);
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
