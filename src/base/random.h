// Counter-based randomness: every random number of a run is a function of (seed, purpose), never of the
// numbers drawn before. The 64-bit mixing is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cstdint>
#include <string_view>

namespace trainer {

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Derives a key from a key and another part (a number or a name).
constexpr uint64_t derive(uint64_t key, uint64_t part) { return mix64(key ^ mix64(part)); }
constexpr uint64_t derive(uint64_t key, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return derive(key, hash);
}

// A seeded permutation of [0, size): at(i) for any i without storing or computing the rest (a Feistel network
// with cycle walking, Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  uint64_t at(uint64_t index) const;  // index < size

 private:
  uint64_t size_, key_;
  int half_bits_;
};

}  // namespace trainer
