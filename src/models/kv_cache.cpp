#include "models/kv_cache.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trainer {

void KvCache::make_room(const CacheRows& rows, const at::Tensor& like) {
  const int64_t slots = k_.defined() ? k_.size(0) : 0, has = k_.defined() ? k_.size(2) : 0;
  if (rows.slots() <= slots && rows.room() <= has) return;
  for (at::Tensor* cache : {&k_, &v_}) {
    at::Tensor wider =
        at::empty({std::max(slots, rows.slots()), like.size(1), std::max(rows.room(), has), like.size(3)},
                  like.options());
    if (cache->defined()) wider.narrow(0, 0, slots).narrow(2, 0, has).copy_(*cache);
    *cache = wider;
  }
}

void KvCache::put(const CacheRows& rows, int64_t first, const at::Tensor& k, const at::Tensor& v,
                  bool packed) {
  make_room(rows, k);
  if (!packed) {  // what is behind a row's end is written over before it is seen
    const at::Tensor slots = rows.table().narrow(0, first, k.size(0)).select(1, 1).to(at::kLong);
    k_.narrow(2, 0, k.size(2)).index_copy_(0, slots, k);
    v_.narrow(2, 0, v.size(2)).index_copy_(0, slots, v);
    return;
  }
  int64_t begin = 0;
  for (int64_t row = first; row < rows.size(); row++) {
    const int64_t length = rows.lengths()[static_cast<size_t>(row)];
    for (const auto& [from, cache] : {std::pair(&k, &k_), std::pair(&v, &v_)})
      cache->select(0, rows.slot(row))
          .narrow(1, 0, length)
          .copy_(from->select(0, 0).narrow(1, begin, length));
    begin += length;
  }
}

CachedKeys KvCache::keys(const CacheRows& rows, const at::Tensor& like) {
  make_room(rows, like);
  return {k_, v_, rows.table()};
}

void KvCache::add_rows(at::Tensor& to, const at::Tensor& rows) {
  to = to.defined() ? at::cat({to, rows}) : rows;
}

void KvCache::select_states(const at::Tensor& rows) {
  for (at::Tensor* part : {&tail, &states}) {
    if (part->defined()) *part = part->index_select(0, rows);
  }
}

}  // namespace trainer
