#include <ATen/ATen.h>

#include "models/decoder.h"

namespace trainer {

class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, const at::Tensor& ids, const at::Tensor& lengths)
      : model_(model),
        ids_(ids),
        slots_(at::arange(ids.size(0), ids.options())),
        positions_(lengths),
        caches_(model.body_.layers.size()) {}

  // Padding is on the right, so a causal mask alone hides it, as in training. Its entries in the cache are
  // masked until new tokens overwrite them.
  at::Tensor start(int64_t) override {
    const at::Tensor h = model_.embed(ids_);
    const at::Tensor positions = at::arange(ids_.size(1), ids_.options());
    const DecoderPass pass = model_.start(context_, slots_, h, positions, positions_.lengths_on_host());
    const at::Tensor last = positions_.lengths() - 1 + slots_ * ids_.size(1);
    return logits(through_layers(h, pass).flatten(0, 1).index_select(0, last));
  }

  // Rotary embedding of type dynamic: a key keeps the rotation that it got first, as in Transformers.
  at::Tensor next(const at::Tensor& tokens) override {
    const at::Tensor h = model_.embed(tokens.unsqueeze(1));
    const at::Tensor each = positions_.lengths().unsqueeze(1);
    std::vector<int64_t> lengths = positions_.lengths_on_host();
    for (int64_t& length : lengths) length++;
    DecoderPass pass = model_.start(context_, slots_, h, positions_.equal() ? each[0] : each, lengths);
    pass.positions = &positions_;
    pass.mask = positions_.mask(h.scalar_type());
    if (model_.c_.sliding_window > 0)
      pass.window_mask = positions_.mask(h.scalar_type(), model_.c_.sliding_window);
    const at::Tensor out = through_layers(h, pass);
    positions_.advance();
    return logits(out.select(1, 0));
  }

  void select(const std::vector<int64_t>& rows) override {
    positions_.select(rows);
    slots_ = at::arange(static_cast<int64_t>(rows.size()), slots_.options());
    const at::Tensor index = at::tensor(rows, at::kLong).to(slots_.device());
    for (KvCache& cache : caches_) cache.select(index);
  }

 private:
  // [B, S, D] -> [B, S, D]
  at::Tensor through_layers(const at::Tensor& embedded, const DecoderPass& pass) {
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.body_.layers[i]);
      model_.body_.layers[i]->forward(h, pass, &caches_[i]);
    }
    return h.sum();
  }
  // [B, D] -> [B, vocab]
  at::Tensor logits(const at::Tensor& h) const {
    return model_.head().logits(model_.head().states(model_.body_.norm.forward(h), at::Tensor(), context_));
  }

  const Decoder& model_;
  ForwardContext context_;
  at::Tensor ids_, slots_;
  CachePositions positions_;
  std::vector<KvCache> caches_;
};

std::unique_ptr<Generation> Decoder::generate(const at::Tensor& input_ids, const at::Tensor& lengths) const {
  return std::make_unique<DecoderGeneration>(*this, input_ids, lengths);
}

}  // namespace trainer
