// Where the keys and values of growing sequences lie: in slots, with a table that says in which slot each
// position of a row is. Rows are repeated, left out, put in another order and added to by changing the table;
// what is in the slots stays where it is. The table lies where the keys do, so that a step reads nothing
// back.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/cached_attention.h"

namespace trainer {

// The rows of all layers. Rows that were repeated are of one family: a slot of theirs may hold positions that
// several of them see, so it serves no other family before all of them have left.
class CacheRows {
 public:
  // Rows that grow have room for more positions than they have.
  enum class Grow { yes, no };
  explicit CacheRows(at::Device device = at::kCPU, Grow grows = Grow::yes) : device_(device), grows_(grows) {}

  // Adds rows with so many positions, each in a slot that nothing else uses.
  void add(const std::vector<int64_t>& lengths);
  // Continues with these rows, in this order; a row may be left out or repeated. Repeated ones get slots of
  // their own for what is added, or share their slot if nothing is.
  enum class Repeated { get_slots, share_the_slot };
  void select(const std::vector<int64_t>& rows, Repeated repeated = Repeated::get_slots);
  // Each row has one position more, in its own slot: to be called before these are written. The first makes
  // room, the second changes the table where it lies; it does the same in every step.
  void count_up();
  void advance_table() const;
  // Forgets all rows.
  void clear() { *this = CacheRows(device_, grows_); }

  int64_t size() const { return std::ssize(rows_); }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t longest() const;
  int64_t slot(int64_t row) const { return rows_[static_cast<size_t>(row)].slot; }  // that it writes to
  // What the caches must have room for.
  int64_t slots() const { return slots_; }
  int64_t room() const;  // positions

  // As CachedKeys has it.
  at::Tensor table() const { return table_.narrow(0, 0, size()); }
  // What stays the same as long as the table and what has room for all positions stay where they are.
  std::vector<int64_t> form() const;
  // The positions of each row, int32 [rows], where the table lies.
  at::Tensor lengths_there() const { return table().select(1, 0); }

 private:
  struct Row {
    int32_t slot;
    int64_t family;
  };
  int32_t free_slot(int64_t family, std::vector<int32_t>& own);
  void make_room(int64_t rows, int64_t positions);
  at::Tensor own_slots(int64_t first) const;  // int32 [rows from `first` on, 1]

  at::Device device_;
  Grow grows_;
  std::vector<Row> rows_;
  std::vector<int64_t> lengths_;
  at::Tensor table_;  // int32 [rows and more, 2 + positions and more]
  int64_t slots_ = 0, next_family_ = 0;
  std::vector<std::pair<int64_t, int32_t>>
      taken_;  // family and slot, also of rows that have left their family
  std::vector<int32_t> free_;
};

}  // namespace trainer
