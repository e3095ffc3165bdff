// The inputs that recomputed blocks keep from forward to backward, offloaded (memory/offload.h).
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "memory/copy_stream.h"

namespace trainer {

class KeptInputs {
 public:
  explicit KeptInputs(std::shared_ptr<CopyStream> stream);

  // An offloaded input. Its memory is used for another one when this is destroyed.
  class Kept;
  // Copies an input off the device.
  std::shared_ptr<Kept> keep(const at::Tensor& input);
  // Returns it on the device, or where it lies if the device can use it there. Begins to bring back the one
  // that was kept before it, which backward needs next.
  at::Tensor bring_back(Kept& kept) const;

 private:
  struct Buffers;
  void begin(Kept& kept) const;

  std::shared_ptr<Buffers> buffers_;
  std::shared_ptr<CopyStream> stream_;
  std::weak_ptr<Kept> last_;
};

}  // namespace trainer
