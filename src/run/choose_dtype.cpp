#include "run/choose_dtype.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/models/load_model.h"

namespace trainer {

at::ScalarType choose_dtype(const ModelConfig& config, at::Device device) {
  if (config.dtype == ModelDtype::fp32) return at::kFloat;
  if (config.dtype == ModelDtype::automatic)
    return computes_in_bf16(device) ? automatic_dtype(device) : at::kFloat;
  if (!computes_in_bf16(device)) {
    throw of_family(ErrorCode::no_bf16,
                    DeviceError(concat(
                        "model.dtype: bf16: ", device.str(),
                        " does not compute in bf16 (it needs compute capability 8.0, Ampere or newer); use "
                        "model.dtype=fp32")));
  }
  return at::kBFloat16;
}

}  // namespace trainer
