#include "text/tokenizer/word_model.h"

#include <cstring>

#include "base/random.h"

namespace trainer {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

uint64_t sizes_of(size_t word, size_t ids) { return static_cast<uint64_t>(word << 8 | ids) << 32; }

}  // namespace

WordCache::WordCache() : slots_(std::make_unique<Slot[]>(kSlots)) {}

size_t WordCache::pack(std::string_view word, Key& key) {
  const size_t units = (word.size() + 7) / 8;
  if (units > 0) key[units - 1] = 0;
  std::memcpy(key.data(), word.data(), word.size());
  return units;
}

size_t WordCache::slot_of(const Key& key, size_t units, size_t size) {
  uint64_t hash = size;
  for (size_t i = 0; i < units; i++) hash = mix64(hash ^ key[i]);
  return hash % kSlots;
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kLongestWord) return false;
  Key key;
  const size_t units = pack(word, key);
  const Slot& slot = slots_[slot_of(key, units, word.size())];
  const uint64_t state = slot.state.load(std::memory_order_acquire);
  if (state >> 40 != word.size() || state % 2 != 0) return false;
  for (size_t i = 0; i < units; i++) {
    if (slot.word[i].load(kRelaxed) != key[i]) return false;
  }
  const size_t count = state >> 32 & 0xff;
  std::array<uint64_t, kIdUnits> found;
  for (size_t i = 0; 2 * i < count; i++) found[i] = slot.ids[i].load(kRelaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.state.load(kRelaxed) != state) return false;
  for (size_t i = 0; i < count; i++)
    ids.push_back(static_cast<int32_t>(static_cast<uint32_t>(found[i / 2] >> 32 * (i % 2))));
  return true;
}

void WordCache::insert(std::string_view word, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kLongestWord || ids.size() > kMostIds) return;
  Key key;
  const size_t units = pack(word, key);
  Slot& slot = slots_[slot_of(key, units, word.size())];
  uint64_t state = slot.state.load(kRelaxed);
  if (state % 2 != 0 || !slot.state.compare_exchange_strong(state, state + 1, kRelaxed)) return;
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < units; i++) slot.word[i].store(key[i], kRelaxed);
  for (size_t i = 0; i < ids.size(); i += 2) {
    const uint64_t low = static_cast<uint32_t>(ids[i]);
    const uint64_t high = i + 1 < ids.size() ? static_cast<uint32_t>(ids[i + 1]) : 0;
    slot.ids[i / 2].store(high << 32 | low, kRelaxed);
  }
  const uint32_t changes = static_cast<uint32_t>(state) + 2;
  slot.state.store(sizes_of(word.size(), ids.size()) | changes, std::memory_order_release);
}

}  // namespace trainer
