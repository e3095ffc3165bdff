#include "models/kv_cache.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include <ATen/ATen.h>

#include "device/target_device.h"

namespace trainer {
namespace {

constexpr int64_t kStep = 128;  // positions by which it grows, or a quarter of its size

at::Tensor with_room(const at::Tensor& x, int64_t capacity) {
  at::Tensor out = at::zeros({x.size(0), x.size(1), capacity, x.size(3)}, x.options());
  out.narrow(2, 0, x.size(2)).copy_(x);
  return out;
}

std::atomic<bool> rows_on_cpu{false};

}  // namespace

bool caches_have_slots(at::Device device) { return target_of(device) == c10::kCPU && !rows_on_cpu; }
void keep_rows_on_cpu(bool rows) { rows_on_cpu = rows; }

CachePositions::CachePositions(const at::Tensor& lengths, const std::vector<int64_t>& on_host)
    : lengths_(lengths), host_(on_host) {
  update();
}

void CachePositions::update() {
  longest_ = *std::ranges::max_element(host_);
  equal_ = *std::ranges::min_element(host_) == longest_;
}

void CachePositions::advance() {
  lengths_ = lengths_ + 1;
  for (int64_t& length : host_) length++;
  longest_++;
}

void CachePositions::select(const std::vector<int64_t>& rows) {
  lengths_ = lengths_.index_select(0, at::tensor(rows, at::kLong).to(lengths_.device()));
  std::vector<int64_t> host;
  for (const int64_t row : rows) host.push_back(host_[static_cast<size_t>(row)]);
  host_ = std::move(host);
  update();
}

at::Tensor CachePositions::mask(at::ScalarType type, std::optional<int64_t> window,
                                const at::Tensor& always) const {
  if (equal_ && longest_ < window.value_or(longest_ + 1)) return {};
  const at::Tensor keys = at::arange(longest_ + 1, lengths_.options()), own = lengths_.view({-1, 1, 1, 1});
  at::Tensor hidden = keys.gt(own);
  if (window) {
    at::Tensor far = keys.le(own - *window);
    if (always.defined()) far.logical_and_(keys.ge(always.view({-1, 1, 1, 1})));
    hidden.logical_or_(far);
  }
  return at::zeros(hidden.sizes(), lengths_.options().dtype(type)).masked_fill_(hidden, -INFINITY);
}

// Masked positions must hold numbers, because their weight of 0 is multiplied with them.
at::Tensor by_sequence(const at::Tensor& packed, const std::vector<int64_t>& lengths, int64_t room) {
  const at::Tensor all = packed.squeeze(0);
  const at::Tensor out = at::zeros({std::ssize(lengths), all.size(0), room, all.size(2)}, all.options());
  int64_t begin = 0;
  for (int64_t row = 0; row < out.size(0); row++) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    out.select(0, row).narrow(1, 0, length).copy_(all.narrow(1, begin, length));
    begin += length;
  }
  return out;
}

void KvCache::fill(const at::Tensor& k, const at::Tensor& v) {
  k_ = with_room(k, k.size(2) + kStep);
  v_ = with_room(v, v.size(2) + kStep);
}

void KvCache::fill_packed(const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& lengths) {
  const int64_t room = *std::ranges::max_element(lengths) + kStep;
  k_ = by_sequence(k, lengths, room);
  v_ = by_sequence(v, lengths, room);
}

void KvCache::write(at::Tensor& cache, const at::Tensor& x, const CachePositions& positions) {
  if (!cache.defined()) cache = x.narrow(2, 0, 0);
  if (cache.size(2) <= positions.longest())
    cache = with_room(cache, positions.longest() + std::max(kStep, positions.longest() / 4));
  if (positions.equal()) {
    cache.narrow(2, positions.longest(), 1).copy_(x);
  } else {
    const at::Tensor where = positions.lengths().view({-1, 1, 1, 1}).expand(x.sizes());
    cache.scatter_(2, where, x);
  }
}

std::pair<at::Tensor, at::Tensor> KvCache::append(const at::Tensor& k, const at::Tensor& v,
                                                  const CachePositions& positions) {
  write(k_, k, positions);
  write(v_, v, positions);
  return {k_.narrow(2, 0, positions.longest() + 1), v_.narrow(2, 0, positions.longest() + 1)};
}

void KvCache::select(const at::Tensor& rows) {
  for (at::Tensor* part : {&k_, &v_, &tail, &states}) {
    if (part->defined()) *part = part->index_select(0, rows);
  }
}

void KvCache::make_room(const CacheRows& rows, const at::Tensor& like, Grows grows) {
  const int64_t slots = k_.defined() ? k_.size(0) : 0, has = k_.defined() ? k_.size(2) : 0;
  if (rows.slots() <= slots && rows.longest() <= has) return;
  const int64_t more = grows == Grows::yes ? std::max(kStep, rows.longest() / 4) : 0;
  const int64_t longer = rows.longest() <= has ? has : rows.longest() + more;
  for (at::Tensor* cache : {&k_, &v_}) {
    at::Tensor wider =
        at::empty({std::max(slots, rows.slots()), like.size(1), longer, like.size(3)}, like.options());
    if (cache->defined()) wider.narrow(0, 0, slots).narrow(2, 0, has).copy_(*cache);
    *cache = wider;
  }
}

void KvCache::put(const CacheRows& rows, int64_t first, const at::Tensor& k, const at::Tensor& v, bool packed,
                  Grows grows) {
  make_room(rows, k, grows);
  int64_t begin = 0;
  for (int64_t row = first; row < rows.size(); row++) {
    const int64_t length = rows.lengths()[static_cast<size_t>(row)];
    const auto copy = [&](const at::Tensor& from, const at::Tensor& cache) {
      const at::Tensor own = packed ? from.select(0, 0).narrow(1, begin, length)
                                    : from.select(0, row - first).narrow(1, 0, length);
      cache.select(0, rows.slot(row)).narrow(1, 0, length).copy_(own);
    };
    copy(k, k_);
    copy(v, v_);
    begin += length;
  }
}

CachedKeys KvCache::keys(const CacheRows& rows, const at::Tensor& like) {
  make_room(rows, like, Grows::yes);
  return rows.keys(k_, v_);
}

}  // namespace trainer
