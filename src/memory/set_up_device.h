// The settings of a device after it is chosen and before its first tensor.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace trainer {

// Applies memory.limit. On a GPU it also sets whether fp32 matrices are multiplied in TF32, and makes sure
// that LibTorch can allocate there (settle_expandable_segments). May be called again, for the same or another
// device. Throws ConfigError for a text that is no limit.
void set_up_device(c10::Device device, const std::string& memory_limit, bool tf32);

// Under WSL, some drivers refuse the calls that expandable segments need (pytorch#192330), and then not a
// single tensor can be allocated. Calls `allocate`; if it fails for another reason than a lack of memory
// while memory.expandable_segments is on, turns it off for this process, with a warning, and calls it again.
// Throws what that throws. Does nothing if it is off.
void settle_expandable_segments(const std::function<void()>& allocate);

}  // namespace trainer
