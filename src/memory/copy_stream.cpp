#include "memory/copy_stream.h"

#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/target_device.h"

namespace trainer {
namespace {

bool copying = false;

StreamMark mark(c10::Stream stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return event;
}

}  // namespace

CopyStream::CopyStream(at::Device device) { open(device); }

void CopyStream::open(at::Device device) {
  device_ = device;
  copies_ = copying || target_of(device) != c10::kCPU;
  stream_.reset();
  if (device_.is_cuda())
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
}

CopyStream::~CopyStream() {
  if (stream_) finish();
}

void CopyStream::move_to(at::Device device) {
  finish();
  open(device);
}

void CopyStream::after_work(const std::function<void()>& copies) { after(mark_work(), copies); }

void CopyStream::after(const StreamMark& mark, const std::function<void()>& copies) {
  if (!stream_) return copies();
  if (mark) mark->block(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  copies();
}

StreamMark CopyStream::mark_work() const {
  return stream_ ? mark(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)) : nullptr;
}

StreamMark CopyStream::mark_copies() const { return stream_ ? mark(*stream_) : nullptr; }

void CopyStream::work_waits_for(const StreamMark& mark) const {
  if (mark) mark->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void CopyStream::host_waits_for(const StreamMark& mark) {
  if (mark) mark->synchronize();
}

void CopyStream::next_turn() {
  host_waits_for(before_.done);
  before_ = {std::exchange(held_, {}), mark_copies()};
}

void CopyStream::finish() {
  host_waits_for(mark_copies());
  held_.clear();
  before_ = {};
}

CopyAsOnGpu::CopyAsOnGpu() { copying = true; }
CopyAsOnGpu::~CopyAsOnGpu() { copying = false; }

}  // namespace trainer
