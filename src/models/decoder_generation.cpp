#include <ATen/ATen.h>

#include "models/decoder.h"

namespace trainer {

class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, const MicroBatch& prompts)
      : model_(model),
        prompts_(prompts),
        slots_(prompts.slots),
        positions_(prompts.input_lengths, prompts.lengths),
        caches_(model.body_.layers.size()) {}

  // The prompts are laid out as in training. What the cache has after the end of a prompt is masked until new
  // tokens overwrite it.
  at::Tensor start(int64_t) override {
    const at::Tensor h = model_.embed(prompts_.input_ids);
    const DecoderPass pass = model_.start(context_, prompts_, h);
    return logits(through_layers(h, pass).flatten(0, 1).index_select(0, last_tokens()));
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
  // Returns the row of each prompt's last token in the flat states.
  at::Tensor last_tokens() const {
    if (prompts_.packed) return prompts_.packed->starts.narrow(0, 1, slots_.size(0)) - 1;
    return prompts_.input_lengths - 1 + slots_ * prompts_.input_ids.size(1);
  }
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
  MicroBatch prompts_;
  at::Tensor slots_;
  CachePositions positions_;
  std::vector<KvCache> caches_;
};

std::unique_ptr<Generation> Decoder::generate(const MicroBatch& prompts) const {
  return std::make_unique<DecoderGeneration>(*this, prompts);
}

}  // namespace trainer
