#include "ops/recurrent_kernels.h"

#include <cstdlib>
#include <string_view>

#include "device/kernels.h"

namespace trainer {

bool uses_recurrent_kernels(c10::Device device) {
  static const bool wanted = [] {
    const char* const value = std::getenv("TRAINER_RECURRENT_KERNELS");
    return value == nullptr || std::string_view(value) != "off";
  }();
  return wanted && has_kernels(device);
}

}  // namespace trainer
