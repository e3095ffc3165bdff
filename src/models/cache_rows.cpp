#include "models/cache_rows.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trainer {
namespace {

constexpr int64_t kMorePositions = 128;  // by which the table grows, or by a quarter
constexpr int64_t kFirstPosition = 2;    // the column of the slot of position 0

}  // namespace

int64_t CacheRows::longest() const { return lengths_.empty() ? 0 : *std::ranges::max_element(lengths_); }

int64_t CacheRows::room() const { return table_.defined() ? table_.size(1) - kFirstPosition : 0; }

void CacheRows::make_room(int64_t rows, int64_t positions) {
  const int64_t has_rows = table_.defined() ? table_.size(0) : 0, has = room();
  if (rows <= has_rows && positions <= has) return;
  const int64_t more = grows_ == Grow::yes ? std::max(kMorePositions, positions / 4) : 0;
  const int64_t wider = positions <= has ? has : positions + more;
  at::Tensor table = at::zeros({std::max(rows, has_rows), kFirstPosition + wider},
                               at::TensorOptions().device(device_).dtype(at::kInt));
  if (table_.defined()) table.narrow(0, 0, has_rows).narrow(1, 0, kFirstPosition + has).copy_(table_);
  table_ = table;
}

at::Tensor CacheRows::own_slots(int64_t first) const {
  const at::Tensor slots = at::empty({size() - first, 1}, at::kInt);
  for (int64_t row = first; row < size(); row++)
    slots.mutable_data_ptr<int32_t>()[row - first] = rows_[static_cast<size_t>(row)].slot;
  return slots.to(device_);
}

int32_t CacheRows::free_slot(int64_t family, std::vector<int32_t>& own) {
  std::vector<int32_t>& from = own.empty() ? free_ : own;
  int32_t slot = static_cast<int32_t>(slots_);
  if (from.empty()) {
    slots_++;
  } else {
    slot = from.back();
    from.pop_back();
  }
  if (&from == &free_) taken_.emplace_back(family, slot);
  return slot;
}

void CacheRows::add(const std::vector<int64_t>& lengths) {
  const int64_t before = size();
  std::vector<int32_t> none;
  for (const int64_t length : lengths) {
    const int64_t family = next_family_++;
    rows_.push_back({free_slot(family, none), family});
    lengths_.push_back(length);
  }
  make_room(size(), longest());
  const at::Tensor added = table().narrow(0, before, size() - before);
  added.copy_(own_slots(before).expand_as(added));
  added.select(1, 0).copy_(at::tensor(lengths));
}

void CacheRows::select(const std::vector<int64_t>& rows, Repeated repeated) {
  std::vector<Row> next;
  std::vector<int64_t> lengths;
  for (const int64_t row : rows) {
    next.push_back(rows_[static_cast<size_t>(row)]);
    lengths.push_back(lengths_[static_cast<size_t>(row)]);
  }
  const auto stays = [&](int64_t family) {
    return std::ranges::any_of(next, [&](const Row& row) { return row.family == family; });
  };
  std::erase_if(taken_, [&](const auto& taken) {
    if (stays(taken.first)) return false;
    free_.push_back(taken.second);
    return true;
  });
  // Of rows that continue the same one, the first keeps its slot. The others get one of their family's that
  // no row writes to.
  for (size_t i = 0; i < next.size() && repeated == Repeated::get_slots; i++) {
    const auto writes = [&](int32_t slot, size_t among) {
      return std::ranges::any_of(next.begin(), next.begin() + static_cast<int64_t>(among),
                                 [&](const Row& row) { return row.slot == slot; });
    };
    if (!writes(next[i].slot, i)) continue;
    std::vector<int32_t> own;
    for (const auto& [family, slot] : taken_) {
      const auto continued = [&](int64_t row) { return rows_[static_cast<size_t>(row)].slot == slot; };
      if (family == next[i].family && !writes(slot, i) && std::ranges::none_of(rows, continued))
        own.push_back(slot);
    }
    next[i].slot = free_slot(next[i].family, own);
  }
  rows_ = std::move(next);
  lengths_ = std::move(lengths);
  if (rows.empty()) return;
  const at::Tensor chosen = table_.index_select(0, at::tensor(rows, at::kLong).to(device_));
  make_room(size(), 0);
  table().copy_(chosen);
  table().narrow(1, 1, 1).copy_(own_slots(0));
}

void CacheRows::count_up() {
  for (int64_t& length : lengths_) length++;
  make_room(size(), longest());
}

std::vector<int64_t> CacheRows::form() const {
  return {size(), slots_, room(), reinterpret_cast<int64_t>(table_.const_data_ptr())};
}

void CacheRows::advance_table() const {
  const at::Tensor counts = table().narrow(1, 0, 1);
  counts.add_(1);
  table().scatter_(1, counts.to(at::kLong) + (kFirstPosition - 1), table().narrow(1, 1, 1).clone());
}

}  // namespace trainer
