#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "base/random.h"
#include "base/utf8.h"

namespace trainer {
namespace {

constexpr uint64_t kEmpty = ~0ull;
constexpr int32_t kGone = -1;
constexpr size_t kFew = 64;  // symbols

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::MergeTable::MergeTable(const std::vector<BpeModel::Merge>& merges)
    : slots_(std::bit_ceil(2 * merges.size() + 1), Slot{kEmpty, {}}),
      present_(kBits / 64),
      low_(kLow * kLow) {
  int32_t rank = 0;
  // If a pair occurs twice, the last merge counts.
  for (const auto& merge : merges) {
    const uint64_t pair = pair_of(merge.left, merge.right), hash = mix64(pair);
    const Merged merged{rank++, merge.merged};
    slots_[slot_of(pair, hash)] = {pair, merged};
    present_[hash % kBits / 64] |= uint64_t{1} << hash % 64;
    if (is_low(merge.left, merge.right))
      low_[static_cast<size_t>(merge.left) * kLow + static_cast<size_t>(merge.right)] = merged;
  }
}

size_t Bpe::MergeTable::slot_of(uint64_t pair, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash >> 32 & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != kEmpty) slot = (slot + 1) & mask;
  return slot;
}

Bpe::Merged Bpe::MergeTable::find(int32_t left, int32_t right) const {
  if (is_low(left, right)) return low_[static_cast<size_t>(left) * kLow + static_cast<size_t>(right)];
  const uint64_t pair = pair_of(left, right), hash = mix64(pair);
  if (!may_have(hash)) return Merged{};
  const Slot& slot = slots_[slot_of(pair, hash)];
  return slot.pair == kEmpty ? Merged{} : slot.merged;
}

Bpe::Bpe(const BpeModel& model)
    : merges_(model.merges), byte_level_(model.byte_level), unk_(model.unk), fuse_unk_(model.fuse_unk) {
  std::fill(std::begin(id_of_byte_), std::end(id_of_byte_), kGone);
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < model.tokens.size(); i++) {
    if (!model.tokens[i] || model.tokens[i]->empty()) continue;
    const std::string& token = *model.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (token.size() == 1) {
      id_of_byte_[static_cast<unsigned char>(token[0])] = id;
    } else if (!byte_level_ && character_length(token, 0) == token.size()) {
      characters_.emplace(token, id);
    }
    if (model.ignore_merges) whole_words_.emplace(token, id);
    if (model.byte_fallback && byte_of_token(token)) ids.emplace(token, id);
  }
  if (model.byte_fallback && !byte_level_) {
    byte_tokens_ = ByteTokens([&](std::string_view name) {
      const auto found = ids.find(name);
      return found == ids.end() ? std::nullopt : std::optional(found->second);
    });
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  if (!whole_words_.empty()) {
    const auto found = whole_words_.find(word);
    if (found != whole_words_.end()) {
      ids.push_back(found->second);
      return cache_.insert(word, std::span(ids).last(1));
    }
  }
  const size_t before = ids.size();
  append_start_symbols(word, ids);
  ids.resize(before + merge(std::span(ids).subspan(before)));
  cache_.insert(word, std::span(ids).subspan(before));
}

int32_t Bpe::id_of_character(std::string_view character) const {
  if (character.size() == 1) return id_of_byte_[static_cast<unsigned char>(character[0])];
  const auto found = characters_.find(character);
  return found == characters_.end() ? kGone : found->second;
}

void Bpe::append_start_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown = false;  // an unk is not appended yet: the next one may be fused with it
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, byte_level_ ? 1 : character_length(word, at));
    at += character.size();
    const int32_t id = id_of_character(character);
    if (id != kGone) {
      if (unknown) symbols.push_back(*unk_);
      unknown = false;
      symbols.push_back(id);
    } else if (!byte_tokens_.append(character, symbols) && unk_) {
      if (unknown && !fuse_unk_) symbols.push_back(*unk_);
      unknown = true;
    }
  }
  if (unknown) symbols.push_back(*unk_);
}

size_t Bpe::merge(std::span<int32_t> symbols) const {
  return symbols.size() <= kFew ? merge_few(symbols) : merge_many(symbols);
}

// For most words. Each round searches all pairs for the best one.
size_t Bpe::merge_few(std::span<int32_t> symbols) const {
  std::array<int32_t, kFew> ranks, merged;  // for each symbol and the next one
  size_t pairs = symbols.empty() ? 0 : symbols.size() - 1;
  const auto look_up = [&](size_t i) {
    const Merged found = merges_.find(symbols[i], symbols[i + 1]);
    ranks[i] = found.rank;
    merged[i] = found.id;
  };
  for (size_t i = 0; i < pairs; i++) look_up(i);
  while (pairs > 0) {
    const auto best =
        static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + pairs) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged[best];
    // Remove the right symbol, and the pair that begins with it.
    std::copy(symbols.begin() + best + 2, symbols.begin() + pairs + 1, symbols.begin() + best + 1);
    for (auto* list : {&ranks, &merged})
      std::copy(list->begin() + best + 1, list->begin() + pairs, list->begin() + best);
    pairs--;
    if (best < pairs) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  return symbols.empty() ? 0 : pairs + 1;
}

// For long words. The symbols form a linked list: next[i] is the index of the symbol after i. A merge writes
// its result to the index of the left symbol. The queue may still hold pairs that no longer exist; their ids
// no longer match.
size_t Bpe::merge_many(std::span<int32_t> symbols) const {
  struct Candidate {
    Merged merged;
    int32_t place, left, right;
    // std::priority_queue returns the largest, which must be the lowest rank, then the leftmost.
    bool operator<(const Candidate& other) const {
      return merged.rank != other.merged.rank ? merged.rank > other.merged.rank : place > other.place;
    }
  };
  const auto size = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> next(symbols.size()), before(symbols.size());
  for (int32_t i = 0; i < size; i++) {
    next[i] = i + 1;
    before[i] = i - 1;
  }
  std::vector<Candidate> found;
  found.reserve(symbols.size());
  const auto candidate = [&](int32_t place, auto&& keep) {
    if (place < 0 || next[place] >= size) return;
    const int32_t left = symbols[place], right = symbols[next[place]];
    if (const Merged merged = merges_.find(left, right); merged.rank != kNoRank)
      keep(Candidate{merged, place, left, right});
  };
  for (int32_t i = 0; i < size; i++) candidate(i, [&](const Candidate& c) { found.push_back(c); });
  if (found.empty()) return symbols.size();

  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(found));
  const auto push = [&](const Candidate& c) { queue.push(c); };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const int32_t place = best.place;
    if (symbols[place] != best.left || next[place] >= size || symbols[next[place]] != best.right) continue;
    const int32_t right = next[place];
    symbols[place] = best.merged.id;
    symbols[right] = kGone;
    next[place] = next[right];
    if (next[place] < size) before[next[place]] = place;
    candidate(place, push);
    candidate(before[place], push);
  }
  return static_cast<size_t>(std::remove(symbols.begin(), symbols.end(), kGone) - symbols.begin());
}

}  // namespace trainer
