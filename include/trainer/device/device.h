// The device of a run. One program serves machines with and without a GPU:
// LibTorch's CUDA half is opened when there is a driver.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// Opens libtorch_cuda beside libtorch_cpu; call before anything asks LibTorch for CUDA. Returns "" when it is
// there, else why not; then the CPU is used.
const std::string& open_cuda();

// acquire_device() (acquire_device.h) with no minimum, no waiting and no lock kept.
c10::Device choose_device(const std::string& wanted);

// "cpu (2 threads)", "cuda:0 NVIDIA H200, 24.1 GB free of 25.4 GB"
std::string describe_device(c10::Device device);

// False for a GPU that does not compute in bf16 (before compute capability 8.0).
bool computes_in_bf16(c10::Device device);

// Whether GPUs multiply fp32 matrices in TF32; they do from open_cuda() on.
void use_tf32(bool on);

}  // namespace trainer
