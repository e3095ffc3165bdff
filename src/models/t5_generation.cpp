#include <ATen/ATen.h>

#include "trainer/nn/dropout.h"

#include "models/t5.h"

namespace trainer {

class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, const at::Tensor& ids, const at::Tensor& lengths)
      : model_(model),
        slots_(at::arange(ids.size(0), ids.options())),
        lengths_(lengths),
        positions_(at::zeros_like(lengths)),
        caches_(model.decoder_.blocks.size()) {
    source_rows_ = row_keys(slots_, ids.size(1));
    encoded_ = model_.encode(ids, lengths, source_rows_, context_, 0);
    for (int64_t i = 0; i < ids.size(0); i++) sources_.push_back(i);
  }

  at::Tensor start(int64_t start_token) override { return next(at::full_like(slots_, start_token)); }

  at::Tensor next(const at::Tensor& tokens) override {
    T5Pass pass = model_.start(context_, row_keys(slots_, 1));
    pass.source_rows = source_rows_;
    pass.source_lengths = lengths_;
    pass.positions = &positions_;
    const at::Tensor embedded = model_.decoder_embed_.forward(tokens.unsqueeze(1), model_.dtype());
    model_.decoder_.prepare(pass, embedded, positions_.longest() + 1);
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      model_.decoder_.blocks[i]->forward(h, encoded_, pass, &caches_[i]);
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
    for (at::Tensor* part : {&lengths_, &source_rows_, &encoded_}) *part = part->index_select(0, index);
    for (T5BlockCache& cache : caches_) {
      cache.cross_k = cache.cross_k.index_select(0, index);
      cache.cross_v = cache.cross_v.index_select(0, index);
    }
  }

 private:
  const T5& model_;
  ForwardContext context_;
  std::vector<int64_t> sources_;  // of each row
  at::Tensor slots_, lengths_, source_rows_, encoded_;
  CachePositions positions_;
  std::vector<T5BlockCache> caches_;
};

std::unique_ptr<Generation> T5::generate(const at::Tensor& input_ids, const at::Tensor& lengths) const {
  return std::make_unique<T5Generation>(*this, input_ids, lengths);
}

}  // namespace trainer
