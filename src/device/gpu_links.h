// The connections between the GPUs that this process sees (peer-to-peer). Uses no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/device/gpu_probe.h"

namespace trainer {

// A pair of GPUs.
struct GpuLink {
  int first = 0, second = 0;  // N of cuda:N
  bool direct = false;        // each may use the other's memory (peer access)
  std::string path;           // "NVLink", "one PCIe switch"; "" if NVML does not say
  double rate = 0;            // of a copy from the first to the second, in bytes a second; 0: not measured
  std::string problem;        // why not; "" if it is measured

  // "cuda:0 and cuda:1: direct, NVLink, 190 GB/s"
  std::string text() const;
};

// Returns each pair of the visible GPUs, the first index first. Copies between them, which takes some
// milliseconds a pair, 128 MB on each GPU, and a context there for as long as it takes. Does not throw.
std::vector<GpuLink> measure_gpu_links(const std::vector<Gpu>& visible);

}  // namespace trainer
