// What a memory plan of a GPU sees of a piece of code.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/target_device.h"
#include "memory/meta_memory.h"

namespace trainer {

// Bytes of the tensors that come while `work` runs on meta for a GPU.
inline std::vector<int64_t> planned(const std::function<void()>& work) {
  const PlanningFor planning(c10::kCUDA);
  const MetaRecorder recorder(1);
  work();
  std::vector<int64_t> out;
  for (const MetaEvent& event : recorder.events()) {
    if (event.bytes > 0) out.push_back(event.bytes);
  }
  return out;
}

}  // namespace trainer
