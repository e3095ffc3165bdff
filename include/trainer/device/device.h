// The device of a run. The same program runs on machines with and without a GPU: it opens LibTorch's CUDA
// libraries only if there is a driver.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// Opens libtorch_cuda in addition to libtorch_cpu; call before anything asks LibTorch for CUDA. Returns "" if
// that worked, otherwise the reason; then the CPU is used.
const std::string& open_cuda();

// acquire_device() (acquire_device.h) without a minimum, without waiting, and without keeping a lock.
c10::Device choose_device(const std::string& wanted);

// Describes a device: "cpu (2 threads)", "cuda:0 NVIDIA H200, 24.1 GB free of 25.4 GB".
std::string describe_device(c10::Device device);

// Returns whether the device computes in bf16; false for GPUs before compute capability 8.0.
bool computes_in_bf16(c10::Device device);

// The first number of a GPU's compute capability: 8 for Ampere, 9 for Hopper; 0 if it is not known.
int compute_major(c10::Device device);

// Sets whether GPUs multiply fp32 matrices in TF32; open_cuda() switches it on.
void use_tf32(bool on);

// While it lives, LibTorch's operators on a GPU add up in the same order every time (training.deterministic),
// in all threads. Changes nothing for the CPU, where they always do, nor if `on` is false.
class Deterministic {
 public:
  Deterministic(c10::DeviceType device, bool on);
  ~Deterministic();
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  bool before_;
};

}  // namespace trainer
