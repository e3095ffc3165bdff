// What the kernels' files include, under the names by which they do.
#pragma once

#include <span>

#include "trainer/device/kernels.h"

namespace trainer {

std::span<const KernelFile> kernel_headers();

}  // namespace trainer
