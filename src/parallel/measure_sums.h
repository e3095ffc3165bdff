// How fast ranks on one machine add up tensors that are in main memory.
#pragma once

#include <cstdint>

namespace trainer {

// Returns the bytes a second that each of two ranks sends while they add tensors of 16 MB up by Gloo, as
// `--ranks` does, and GPUs without NCCL. The ranks are threads of this process. It takes some 0.1 s. Throws
// LostRank when they cannot connect.
double measure_sum_rate();

}  // namespace trainer
