// GPUs that a plan is made for: "24GB", "2x24GB", "4x8x80GB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/config.h"

namespace trainer {

struct Cards {
  int64_t memory = 0;       // of each GPU, in bytes
  int64_t per_machine = 1;  // GPUs of a machine
  int64_t machines = 1;

  int64_t count() const { return machines * per_machine; }
  // "24.0 GB", "2 GPUs of 24.0 GB", "4 machines of 8 GPUs of 80.0 GB"
  std::string text() const;
};

// Returns the GPUs of "SIZE", "GPUSxSIZE" or "MACHINESxGPUSxSIZE". A size is as in parse_byte_size(); a bare
// number of up to four characters is GB. Returns nullopt for anything else, and for more than 65,536 GPUs.
std::optional<Cards> parse_cards(const std::string& text);

// The settings of LibTorch's caching allocator on the GPU.

// Returns the settings in the format of PYTORCH_ALLOC_CONF: "expandable_segments:True,max_split_size_mb:128".
// Settings that are off or not set are left out; "" when none is left.
std::string allocator_settings(const MemoryConfig& config);

}  // namespace trainer
