#include <algorithm>

#include <ATen/ATen.h>

#include "models/t5gemma.h"
#include "nn/few_rows_linear.h"
#include "ops/dropout.h"

namespace trainer {

// On the CPU the caches have slots (models/cache_rows.h), and sources can be added; on a GPU a row for each
// source. In T5Gemma 2 the keys and values of a source are the first positions of its row's cache; in T5Gemma
// they lie apart.
class T5GemmaGeneration : public Generation {
 public:
  T5GemmaGeneration(const T5Gemma& model, const MicroBatch& sources)
      : model_(model),
        second_(model.c_.second),
        batch_(sources),
        slots_(sources.slots),
        in_slots_(caches_have_slots(slots_.device())),
        lengths_(sources.input_lengths),
        positions_(second_ ? lengths_ : at::zeros_like(lengths_),
                   second_ ? sources.lengths : std::vector<int64_t>(sources.lengths.size(), 0)),
        caches_(model.decoder_.layers.size()) {}

  at::Tensor start(int64_t start_token) override {
    if (in_slots_) {
      add(batch_, start_token);
    } else {
      fill();
    }
    batch_ = {};
    return next(at::full_like(slots_, start_token));
  }

  bool takes_more() const override { return in_slots_; }

  // The new rows begin with the start token in the next step.
  at::Tensor add(const MicroBatch& sources, int64_t) override {
    context_.few_rows = are_few_rows(sources.lengths);
    CacheRows& of_sources = second_ ? rows_ : source_rows_;
    const int64_t first = of_sources.size();
    of_sources.add(sources.lengths);
    if (!second_) rows_.add(std::vector<int64_t>(sources.lengths.size(), 0));
    source_lengths_.insert(source_lengths_.end(), sources.lengths.begin(), sources.lengths.end());
    written_.resize(source_lengths_.size(), 0);
    for_source_keys(sources, [&](T5GemmaCache& cache, const at::Tensor& k, const at::Tensor& v) {
      KvCache& to = second_ ? cache.self : cache.cross;
      to.put(of_sources, first, k, v, sources.packed.has_value(),
             second_ ? KvCache::Grows::yes : KvCache::Grows::no);
    });
    return {};
  }

  at::Tensor next(const at::Tensor& tokens) override {
    return in_slots_ ? next_cached(tokens) : next_masked(tokens);
  }

  void select(const std::vector<int64_t>& rows) override {
    if (in_slots_) {
      source_lengths_ = chosen(source_lengths_, rows);
      written_ = chosen(written_, rows);
      rows_.select(rows);
      if (!second_) source_rows_.select(rows, CacheRows::Repeated::share_the_slot);
      return;
    }
    const at::Tensor index = at::tensor(rows, at::kLong).to(slots_.device());
    slots_ = at::arange(static_cast<int64_t>(rows.size()), slots_.options());
    positions_.select(rows);
    lengths_ = lengths_.index_select(0, index);
    if (cross_mask_.defined()) cross_mask_ = cross_mask_.index_select(0, index);
    for (T5GemmaCache& cache : caches_) {
      cache.self.select(index);
      if (second_) continue;
      cache.cross_k = cache.cross_k.index_select(0, index);
      cache.cross_v = cache.cross_v.index_select(0, index);
    }
  }

 private:
  static std::vector<int64_t> chosen(const std::vector<int64_t>& from, const std::vector<int64_t>& rows) {
    std::vector<int64_t> out;
    for (const int64_t row : rows) out.push_back(from[static_cast<size_t>(row)]);
    return out;
  }

  // Calls use(cache, keys, values) for each layer of the decoder.
  template <class Use>
  void for_source_keys(const MicroBatch& sources, const Use& use) {
    const Encoded encoded = model_.encode(sources, context_, 0, T5Gemma::Sources::one_by_one);
    for (size_t i = 0; i < caches_.size(); i++) {
      const T5GemmaLayer& layer = *model_.decoder_.layers[i];
      const auto entered = model_.enter(layer);
      const auto [k, v] = layer.of_source().source_keys(encoded.states, encoded.rows, context_);
      use(caches_[i], k, v);
    }
  }

  void fill() {
    const bool packed = batch_.packed.has_value();
    for_source_keys(batch_, [&](T5GemmaCache& cache, const at::Tensor& k, const at::Tensor& v) {
      if (second_) return packed ? cache.self.fill_packed(k, v, batch_.lengths) : cache.self.fill(k, v);
      const int64_t longest = std::ranges::max(batch_.lengths);
      cache.cross_k = packed ? by_sequence(k, batch_.lengths, longest) : k;
      cache.cross_v = packed ? by_sequence(v, batch_.lengths, longest) : v;
    });
    if (second_) return;
    cross_mask_ =
        source_mask(lengths_, std::ranges::max(batch_.lengths), slots_.options().dtype(model_.dtype()));
  }

  at::Tensor next_cached(const at::Tensor& tokens) {
    context_.few_rows = true;
    const at::Tensor places = at::tensor(written_, at::kLong).unsqueeze(1);
    for (int64_t& written : written_) written++;
    rows_.advance();
    T5GemmaPass pass = model_.start(context_, row_keys(at::arange(rows_.size(), slots_.options()), 1));
    pass.cache_rows = &rows_;
    pass.cached_sources = &source_rows_;
    pass.source_lengths = source_lengths_;
    return logits_of(tokens, pass, places);
  }

  at::Tensor next_masked(const at::Tensor& tokens) {
    T5GemmaPass pass = model_.start(context_, row_keys(slots_, 1));
    pass.positions = &positions_;
    pass.mask = positions_.mask(model_.dtype());
    if (model_.decoder_.has_sliding()) {
      const at::Tensor source = second_ ? lengths_ : at::Tensor();
      pass.window_mask = positions_.mask(model_.dtype(), model_.c_.decoder.sliding_window, source);
    }
    pass.cross_mask = cross_mask_;
    const at::Tensor places = second_ ? positions_.lengths() - lengths_ : positions_.lengths();
    const at::Tensor out = logits_of(tokens, pass, places.unsqueeze(1));
    positions_.advance();
    return out;
  }

  // `places`: the positions of the tokens in their answers, int64 [batch, 1].
  at::Tensor logits_of(const at::Tensor& tokens, T5GemmaPass& pass, const at::Tensor& places) {
    const at::Tensor embedded = model_.decoder_.embed(tokens.unsqueeze(1), model_.dtype());
    model_.decoder_.rotate(pass, places, embedded.options());
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const T5GemmaLayer& layer = *model_.decoder_.layers[i];
      const auto entered = model_.enter(layer);
      layer.forward(h, std::nullopt, pass, &caches_[i]);
    }
    const at::Tensor last = model_.decoder_.finish(h.sum().select(1, 0), {}, pass);
    const at::Tensor states = model_.head().states(last, at::Tensor(), context_);
    return in_slots_ ? model_.head().next_logits(states) : model_.head().logits(states);
  }

  const T5Gemma& model_;
  bool second_;
  MicroBatch batch_;
  ForwardContext context_;
  at::Tensor slots_;
  bool in_slots_;
  at::Tensor lengths_;                   // of the source of each row, on a GPU
  at::Tensor cross_mask_;                // of T5Gemma, there
  std::vector<int64_t> source_lengths_;  // the same in slots
  std::vector<int64_t> written_;         // tokens of the answer of each row, in slots
  CachePositions positions_;             // on a GPU
  CacheRows rows_, source_rows_;
  std::vector<T5GemmaCache> caches_;
};

std::unique_ptr<Generation> T5Gemma::generate(const MicroBatch& prompts) const {
  return std::make_unique<T5GemmaGeneration>(*this, prompts);
}

}  // namespace trainer
