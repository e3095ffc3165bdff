#include <algorithm>

#include <ATen/ATen.h>

#include "models/t5.h"
#include "ops/dropout.h"

namespace trainer {

class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, const MicroBatch& sources)
      : model_(model),
        batch_(sources),
        slots_(sources.slots),
        lengths_(sources.input_lengths),
        longest_(*std::ranges::max_element(sources.lengths)),
        positions_(at::zeros_like(lengths_), std::vector<int64_t>(sources.lengths.size(), 0)),
        caches_(model.decoder_.blocks.size()) {
    for (int64_t i = 0; i < std::ssize(sources.lengths); i++) sources_.push_back(i);
  }

  // The first pass of the decoder leaves keys and values of the sources in the caches.
  at::Tensor start(int64_t start_token) override {
    encoded_ = model_.encode(batch_, context_, 0);
    at::Tensor logits = next(at::full_like(slots_, start_token));
    encoded_ = {};
    return logits;
  }

  at::Tensor next(const at::Tensor& tokens) override {
    T5Pass pass = model_.start(context_, row_keys(slots_, 1));
    pass.source_rows = encoded_.rows;
    pass.source_lengths = lengths_;
    pass.source_positions = longest_;
    if (batch_.packed) pass.packed_sources = &batch_.lengths;
    pass.positions = &positions_;
    const at::Tensor embedded = model_.decoder_embed_.forward(tokens.unsqueeze(1), model_.dtype());
    model_.decoder_.prepare(pass, embedded, positions_.longest() + 1);
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      model_.decoder_.blocks[i]->forward(h, encoded_.states, pass, &caches_[i]);
    }
    positions_.advance();
    const at::Tensor last = h.normed(model_.decoder_.final_layer_norm).select(1, 0);
    return model_.head().logits(model_.head().states(last, at::Tensor(), context_));
  }

  void select(const std::vector<int64_t>& rows) override {
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
  const T5& model_;
  MicroBatch batch_;
  ForwardContext context_;
  std::vector<int64_t> sources_;  // of each row
  at::Tensor slots_, lengths_;
  int64_t longest_;  // source
  Encoded encoded_;  // only in the first pass
  CachePositions positions_;
  std::vector<T5BlockCache> caches_;
};

std::unique_ptr<Generation> T5::generate(const MicroBatch& prompts) const {
  return std::make_unique<T5Generation>(*this, prompts);
}

}  // namespace trainer
