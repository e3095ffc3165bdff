#include "config/allocator_settings.h"

#include <vector>

#include "trainer/base/strings.h"

namespace trainer {

std::string allocator_settings(const MemoryConfig& config) {
  std::vector<std::string> parts;
  if (config.expandable_segments) parts.emplace_back("expandable_segments:True");
  if (config.max_split_size_mb) parts.push_back(concat("max_split_size_mb:", *config.max_split_size_mb));
  if (config.roundup_power2_divisions > 0)
    parts.push_back(concat("roundup_power2_divisions:", config.roundup_power2_divisions));
  if (config.garbage_collection_threshold > 0)
    parts.push_back(concat("garbage_collection_threshold:", config.garbage_collection_threshold));
  return join(parts, ",");
}

}  // namespace trainer
