#include "base/random.h"

#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace trainer {
namespace {

// SplitMix64's first outputs for the seed 1234567, from the reference implementation
// (https://prng.di.unimi.it/splitmix64.c): the state grows by the golden gamma before it is mixed.
TEST(Mix64, IsTheFinaliserOfSplitmix64) {
  constexpr uint64_t gamma = 0x9e3779b97f4a7c15ull;
  const std::vector<uint64_t> expected{6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull,
                                       4593380528125082431ull, 16408922859458223821ull};
  for (uint64_t i = 0; i < expected.size(); i++) EXPECT_EQ(mix64(1234567 + i * gamma), expected[i]);
}

TEST(Derive, DependsOnEveryPartAndOnTheirOrder) {
  const std::set<uint64_t> keys{
      derive(1, 2),           derive(2, 1),  derive(1, 3),    derive(1, "ab"),
      derive(1, "ba"),        derive(1, ""), derive(2, "ab"), derive(derive(1, 2), 3),
      derive(derive(1, 3), 2)};
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(derive(1, "encoder.block.0"), derive(1, "encoder.block.0"));
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size = 1; size <= 300; size++) {
    const Permutation permutation(size, derive(7, size));
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; i++) {
      const uint64_t at = permutation.at(i);
      ASSERT_LT(at, size);
      ASSERT_FALSE(seen[at]) << "size " << size << ": " << at << " twice";
      seen[at] = true;
    }
  }
}

TEST(Permutation, StaysInsideVeryLargeSizes) {
  for (uint64_t size : {(uint64_t{1} << 32) + 1, (uint64_t{1} << 62) + 12345, ~uint64_t{0}}) {
    const Permutation permutation(size, 3);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; i++) {
      const uint64_t at = permutation.at(size - 1 - i);
      EXPECT_LT(at, size);
      seen.insert(at);
    }
    EXPECT_EQ(seen.size(), 1000u);
  }
}

TEST(Permutation, AnotherKeyIsAnotherOrder) {
  int equal = 0;
  const Permutation a(1000, 1), b(1000, 2);
  for (uint64_t i = 0; i < 1000; i++) equal += a.at(i) == b.at(i);
  EXPECT_LT(equal, 20);  // 1 is expected of two random orders
}

// A shuffle must not keep neighbours together or favour places. Over 400 keys, each of 10 samples should come
// first about 40 times; chi-squared with 9 degrees of freedom exceeds 33.7 once in 10,000.
TEST(Permutation, EverySampleComesFirstEquallyOften) {
  std::vector<int> count(10);
  for (uint64_t key = 0; key < 400; key++) count[Permutation(10, mix64(key)).at(0)]++;
  double chi_squared = 0;
  for (int n : count) chi_squared += (n - 40.0) * (n - 40.0) / 40.0;
  EXPECT_LT(chi_squared, 33.7);
}

TEST(Permutation, FollowsNoLine) {
  constexpr uint64_t size = 10000;
  const Permutation permutation(size, 11);
  double correlation = 0;
  const double mean = (size - 1) / 2.0, variance = (double(size) * size - 1) / 12.0;
  for (uint64_t i = 0; i < size; i++) correlation += (i - mean) * (permutation.at(i) - mean);
  EXPECT_LT(std::abs(correlation / size / variance), 0.05);  // five standard deviations
}

}  // namespace
}  // namespace trainer
