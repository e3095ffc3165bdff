#include <algorithm>

#include <ATen/ATen.h>

#include "models/t5.h"
#include "nn/few_rows_linear.h"
#include "ops/dropout.h"

namespace trainer {

// On the CPU the caches have slots (models/cache_rows.h), and sources can be added; on a GPU a row for each
// source.
class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, const MicroBatch& sources)
      : model_(model),
        batch_(sources),
        slots_(sources.slots),
        in_slots_(caches_have_slots(slots_.device())),
        lengths_(sources.input_lengths),
        longest_(*std::ranges::max_element(sources.lengths)),
        positions_(at::zeros_like(lengths_), std::vector<int64_t>(sources.lengths.size(), 0)),
        caches_(model.decoder_.blocks.size()) {
    for (int64_t i = 0; i < std::ssize(sources.lengths); i++) sources_.push_back(i);
  }

  // On a GPU the first pass of the decoder leaves keys and values of the sources in the caches.
  at::Tensor start(int64_t start_token) override {
    if (in_slots_) {
      add(batch_, start_token);
      batch_ = {};
      return next(at::full_like(slots_, start_token));
    }
    encoded_ = model_.encode(batch_, context_, 0);
    at::Tensor logits = next(at::full_like(slots_, start_token));
    encoded_ = {};
    return logits;
  }

  bool takes_more() const override { return in_slots_; }

  // The new rows have nothing yet: they begin with the start token in the next step.
  at::Tensor add(const MicroBatch& sources, int64_t) override {
    context_.few_rows = are_few_rows(sources.lengths);
    const Encoded encoded = model_.encode(sources, context_, 0);
    const int64_t first = source_rows_.size();
    source_rows_.add(sources.lengths);
    rows_.add(std::vector<int64_t>(sources.lengths.size(), 0));
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      const auto [k, v] =
          model_.decoder_.blocks[i]->cross->part.source_keys(encoded.states, encoded.rows, context_);
      caches_[i].cross.put(source_rows_, first, k, v, sources.packed.has_value(), KvCache::Grows::no);
    }
    return {};
  }

  at::Tensor next(const at::Tensor& tokens) override {
    return in_slots_ ? next_cached(tokens) : next_masked(tokens);
  }

  void select(const std::vector<int64_t>& rows) override {
    if (in_slots_) {
      rows_.select(rows);
      return source_rows_.select(rows, CacheRows::Repeated::share_the_slot);
    }
    const at::Tensor index = at::tensor(rows, at::kLong).to(slots_.device());
    slots_ = at::arange(static_cast<int64_t>(rows.size()), slots_.options());
    positions_.select(rows);
    for (T5BlockCache& cache : caches_) cache.self.select(index);
    std::vector<int64_t> sources;
    for (const int64_t row : rows) sources.push_back(sources_[static_cast<size_t>(row)]);
    if (sources == sources_) return;  // only beams of the same source changed places
    sources_ = std::move(sources);
    lengths_ = lengths_.index_select(0, index);
    for (T5BlockCache& cache : caches_) {
      cache.cross_k = cache.cross_k.index_select(0, index);
      cache.cross_v = cache.cross_v.index_select(0, index);
    }
  }

 private:
  at::Tensor next_cached(const at::Tensor& tokens) {
    context_.few_rows = true;
    rows_.advance();
    T5Pass pass = model_.start(context_, row_keys(at::arange(rows_.size(), slots_.options()), 1));
    pass.cache_rows = &rows_;
    pass.cached_sources = &source_rows_;
    make_biases();
    return logits_of(tokens, pass, {});
  }

  at::Tensor next_masked(const at::Tensor& tokens) {
    T5Pass pass = model_.start(context_, row_keys(slots_, 1));
    pass.source_rows = encoded_.rows;
    pass.source_lengths = lengths_;
    pass.source_positions = longest_;
    if (batch_.packed) pass.packed_sources = &batch_.lengths;
    pass.positions = &positions_;
    const at::Tensor out = logits_of(tokens, pass, encoded_.states);
    positions_.advance();
    return out;
  }

  at::Tensor logits_of(const at::Tensor& tokens, T5Pass& pass, const at::Tensor& source) {
    const at::Tensor embedded = model_.decoder_embed_.forward(tokens.unsqueeze(1), model_.dtype());
    if (!in_slots_) model_.decoder_.prepare(pass, embedded, positions_.longest() + 1);
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      model_.decoder_.blocks[i]->forward(h, source, pass, &caches_[i]);
    }
    const at::Tensor last = h.normed(model_.decoder_.final_layer_norm).select(1, 0);
    const at::Tensor states = model_.head().states(last, at::Tensor(), context_);
    return in_slots_ ? model_.head().next_logits(states) : model_.head().logits(states);
  }

  // The bias of each distance that occurs, with room for more.
  void make_biases() {
    constexpr int64_t more = 128;
    if (biased_ >= rows_.longest()) return;
    biased_ = rows_.longest() + more;
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto& own = model_.decoder_.blocks[i]->self.part.relative_attention_bias;
      const auto of_distances = [&] {
        return own->bias(1, biased_, biased_ - 1, model_.dtype())
            .select(2, 0)[0]
            .flip(1)
            .to(at::kFloat)
            .contiguous();
      };
      caches_[i].bias = own ? of_distances() : caches_[0].bias;
    }
  }

  const T5& model_;
  MicroBatch batch_;
  ForwardContext context_;
  std::vector<int64_t> sources_;  // of each row, on a GPU
  at::Tensor slots_;
  bool in_slots_;
  at::Tensor lengths_;
  int64_t longest_;           // source
  Encoded encoded_;           // only in the first pass
  CachePositions positions_;  // on a GPU
  CacheRows rows_, source_rows_;
  int64_t biased_ = 0;  // distances
  std::vector<T5BlockCache> caches_;
};

std::unique_ptr<Generation> T5::generate(const MicroBatch& prompts) const {
  return std::make_unique<T5Generation>(*this, prompts);
}

}  // namespace trainer
