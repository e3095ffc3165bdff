#include "config/cards.h"

#include <algorithm>
#include <regex>
#include <vector>

#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer {
namespace {

constexpr int64_t kMostGpus = 65'536;

// A card is known by its GB: 24 means 24GB, and so do 24G and 24gb.
std::string with_unit(std::string size) {
  const size_t end = std::min(size.find_first_not_of("0123456789."), size.size());
  if (end == size.size()) return end <= 4 ? size + "GB" : size;
  for (size_t i = end; i < size.size(); i++) {
    if (size[i] >= 'a' && size[i] <= 'z' && size[i] != 'i') size[i] -= 'a' - 'A';
  }
  return size.ends_with('B') ? size : size + 'B';
}

}  // namespace

std::string Cards::text() const {
  if (count() == 1) return bytes_string(memory);
  const std::string of_machine =
      concat(per_machine, per_machine == 1 ? " GPU" : " GPUs", " of ", bytes_string(memory));
  return machines == 1 ? of_machine : concat(machines, " machines of ", of_machine);
}

std::optional<Cards> parse_cards(const std::string& text) {
  static const std::regex form("(?:(?:([0-9]{1,5})x)?([0-9]{1,5})x)?([0-9].*)");
  std::smatch match;
  if (!std::regex_match(text, match, form)) return std::nullopt;
  const std::optional<int64_t> memory = parse_byte_size(with_unit(match[3].str()));
  if (!memory || *memory == 0) return std::nullopt;
  Cards cards{.memory = *memory};
  if (match[1].matched) cards.machines = std::stoll(match[1]);
  if (match[2].matched) cards.per_machine = std::stoll(match[2]);
  const bool possible = cards.count() > 0 && cards.count() <= kMostGpus;
  return possible ? std::optional(cards) : std::nullopt;
}

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
