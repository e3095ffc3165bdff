// Copies of offloaded tensors (memory/offload.h) to the device and back, beside the device's own work.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace trainer {

// A point in the work of a GPU's stream; null: nothing to wait for.
using StreamMark = std::shared_ptr<c10::Event>;

// On a GPU, copies run on a stream of their own. They are ordered with the device's work by events, so the
// host waits for neither. Elsewhere all runs at once, in the order of the calls.
class CopyStream {
 public:
  explicit CopyStream(at::Device device);
  ~CopyStream();
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // From now on copies are between the host and another device.
  void move_to(at::Device device);
  at::Device device() const { return device_; }
  // Returns whether offloaded tensors are copied to the device for use. Otherwise they are used where they
  // lie, as on the CPU.
  bool copies() const { return copies_; }
  at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).device(device_); }

  // Starts copies. They begin when the device has done the work it was given so far.
  void after_work(const std::function<void()>& copies);
  // The same, when it has reached `mark`.
  void after(const StreamMark& mark, const std::function<void()>& copies);
  StreamMark mark_work() const;    // of the work that the device was given so far
  StreamMark mark_copies() const;  // of the copies that were started so far
  void work_waits_for(const StreamMark& mark) const;
  static void host_waits_for(const StreamMark& mark);

  // Keeps a tensor that is being copied until the copies that were started so far are done. The host finds
  // out in the second next_turn() from now, and waits if they are not. So at most two turns' tensors are
  // kept.
  void hold(const at::Tensor& copied) { held_.push_back(copied); }
  void next_turn();
  void finish();  // waits for all copies

 private:
  struct Turn {
    std::vector<at::Tensor> held;
    StreamMark done;
  };
  void open(at::Device device);

  at::Device device_ = at::kCPU;
  bool copies_ = false;
  std::optional<c10::Stream> stream_;
  std::vector<at::Tensor> held_;  // since the last turn
  Turn before_;
};

// For tests: while it lives, new streams of the CPU copy, as those of a GPU do.
class CopyAsOnGpu {
 public:
  CopyAsOnGpu();
  ~CopyAsOnGpu();
  CopyAsOnGpu(const CopyAsOnGpu&) = delete;
  CopyAsOnGpu& operator=(const CopyAsOnGpu&) = delete;
};

}  // namespace trainer
