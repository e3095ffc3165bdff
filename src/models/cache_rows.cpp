#include "models/cache_rows.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trainer {
namespace {

constexpr int64_t kTablePositions = 128;  // by which the table grows, or by a quarter

}  // namespace

int64_t CacheRows::longest() const { return lengths_.empty() ? 0 : *std::ranges::max_element(lengths_); }

void CacheRows::make_room(int64_t rows, int64_t positions) {
  const int64_t has_rows = table_.defined() ? table_.size(0) : 0, has = table_.defined() ? table_.size(1) : 0;
  if (rows <= has_rows && positions <= has) return;
  const int64_t wider = positions <= has ? has : positions + std::max(kTablePositions, positions / 4);
  at::Tensor table = at::zeros({std::max(rows, has_rows), wider}, at::kInt);
  if (table_.defined()) table.narrow(0, 0, has_rows).narrow(1, 0, has).copy_(table_);
  table_ = table;
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
  make_room(size(), longest() + 1);
  for (int64_t row = before; row < size(); row++)
    table_.select(0, row).fill_(rows_[static_cast<size_t>(row)].slot);
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
  if (!rows.empty()) {
    const at::Tensor table = table_.index_select(0, at::tensor(rows, at::kLong));
    make_room(std::ssize(rows), 0);
    table_.narrow(0, 0, table.size(0)).copy_(table);
  }
  rows_ = std::move(next);
  lengths_ = std::move(lengths);
}

void CacheRows::advance() {
  for (int64_t& length : lengths_) length++;
  make_room(size(), longest());
  int32_t* table = table_.mutable_data_ptr<int32_t>();
  for (int64_t row = 0; row < size(); row++)
    table[row * table_.stride(0) + lengths_[static_cast<size_t>(row)] - 1] =
        rows_[static_cast<size_t>(row)].slot;
}

void CacheRows::clear() { *this = CacheRows(); }

}  // namespace trainer
