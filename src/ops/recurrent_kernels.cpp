#include "ops/recurrent_kernels.h"

#include "base/switches.h"
#include "device/kernels.h"

namespace trainer {

bool uses_recurrent_kernels(c10::Device device) {
  return !switch_is(Switch::recurrent_kernels, "off") && has_kernels(device);
}

}  // namespace trainer
