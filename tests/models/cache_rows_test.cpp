// Rows of a cache: whatever is repeated, left out and added, each row reads back what it and those that it
// continues have written.
#include "models/cache_rows.h"

#include <random>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trainer {
namespace {

// A cache of numbers beside what its rows should hold.
struct Mirror {
  CacheRows rows;
  std::vector<std::vector<int>> cache = std::vector<std::vector<int>>(200, std::vector<int>(100));
  std::vector<std::vector<int>> expected;
  int next = 1;

  void add(const std::vector<int64_t>& lengths) {
    const int64_t first = rows.size();
    rows.add(lengths);
    for (size_t i = 0; i < lengths.size(); i++) {
      std::vector<int>& own = expected.emplace_back();
      for (int64_t position = 0; position < lengths[i]; position++)
        own.push_back(cache[static_cast<size_t>(rows.slot(first + static_cast<int64_t>(i)))]
                           [static_cast<size_t>(position)] = next++);
    }
  }
  void step() {
    rows.count_up();
    rows.advance_table();
    for (int64_t row = 0; row < rows.size(); row++) {
      std::vector<int>& own = expected[static_cast<size_t>(row)];
      cache[static_cast<size_t>(rows.slot(row))][own.size()] = next;
      own.push_back(next++);
    }
  }
  void select(const std::vector<int64_t>& chosen) {
    rows.select(chosen);
    std::vector<std::vector<int>> kept;
    for (const int64_t row : chosen) kept.push_back(expected[static_cast<size_t>(row)]);
    expected = std::move(kept);
  }
  void check() const {
    const at::Tensor table = rows.table();
    for (size_t row = 0; row < expected.size(); row++) {
      ASSERT_EQ(rows.lengths()[row], std::ssize(expected[row]));
      ASSERT_EQ(table[static_cast<int64_t>(row)][0].item<int64_t>(), std::ssize(expected[row]));
      ASSERT_EQ(table[static_cast<int64_t>(row)][1].item<int64_t>(), rows.slot(static_cast<int64_t>(row)));
      for (size_t position = 0; position < expected[row].size(); position++) {
        const auto slot =
            table[static_cast<int64_t>(row)][static_cast<int64_t>(position) + 2].item<int64_t>();
        ASSERT_EQ(cache[static_cast<size_t>(slot)][position], expected[row][position])
            << row << " " << position;
      }
    }
  }
};

TEST(CacheRows, HoldWhatWasWrittenThroughAnySelection) {
  std::mt19937 random(1);
  const auto up_to = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (int trial = 0; trial < 30; trial++) {
    Mirror mirror;
    mirror.add({3, 1, 5});
    for (int step = 0; step < 60; step++) {
      mirror.step();
      std::vector<int64_t> chosen;
      const int64_t count = 1 + up_to(12);
      for (int64_t i = 0; i < count; i++) chosen.push_back(up_to(mirror.rows.size()));
      if (step % 3 == 0) mirror.select(chosen);
      if (step % 7 == 0) mirror.add({1 + up_to(20), 2});
      mirror.check();
    }
    EXPECT_LT(mirror.rows.slots(), 60);  // slots are used again
  }
}

TEST(CacheRows, OfWhichSomeEndAreReplacedInTheirSlots) {
  Mirror mirror;
  mirror.add({4, 4, 4, 4});
  for (int round = 0; round < 20; round++) {
    mirror.step();
    mirror.select({0, 2, 3});
    mirror.add({2});
    mirror.check();
  }
  EXPECT_EQ(mirror.rows.slots(), 4);
}

TEST(CacheRows, MayShareASlotThatNothingIsAddedTo) {
  CacheRows rows;
  rows.add({6, 9});
  rows.select({1, 1, 0, 1}, CacheRows::Repeated::share_the_slot);
  EXPECT_EQ(rows.slots(), 2);
  EXPECT_EQ(rows.lengths(), (std::vector<int64_t>{9, 9, 6, 9}));
  EXPECT_EQ((std::set<int64_t>{rows.slot(0), rows.slot(1), rows.slot(3)}).size(), 1u);
  rows.select({2}, CacheRows::Repeated::share_the_slot);
  rows.add({3});
  EXPECT_EQ(rows.slots(), 2);  // that of the source that left
}

}  // namespace
}  // namespace trainer
