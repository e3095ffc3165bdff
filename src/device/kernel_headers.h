// The headers that the kernels' files include, under the names that they use.
#pragma once

#include <span>

#include "device/kernels.h"

namespace trainer {

std::span<const KernelFile> kernel_headers();

}  // namespace trainer
