#include <numeric>

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
        caches_(model.body_.layers.size()),
        prompt_of_(prompts.lengths.size()) {
    std::iota(prompt_of_.begin(), prompt_of_.end(), size_t{0});
  }

  // The prompts are laid out as in training. What the cache has after the end of a prompt is masked until new
  // tokens overwrite it.
  at::Tensor start(int64_t) override { return logits_after(prompts_); }

  // Rotary embedding of type dynamic: a key keeps the rotation that it got first, as in Transformers. Of type
  // longrope: all keys are computed again when a sequence begins to need the long factors, as in
  // Transformers' Phi-3.
  at::Tensor next(const at::Tensor& tokens) override {
    if (model_.c_.rope.type == RopeType::longrope) added_.push_back(tokens);
    const auto invalidates_keys = [&](int64_t n) { return model_.rotary_.invalidates_keys(n + 1); };
    if (std::ranges::any_of(positions_.lengths_on_host(), invalidates_keys)) return logits_after(so_far());
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
    std::vector<size_t> prompt_of;
    for (const int64_t row : rows) prompt_of.push_back(prompt_of_[static_cast<size_t>(row)]);
    prompt_of_ = std::move(prompt_of);
    slots_ = at::arange(static_cast<int64_t>(rows.size()), slots_.options());
    const at::Tensor index = at::tensor(rows, at::kLong).to(slots_.device());
    for (KvCache& cache : caches_) cache.select(index);
    for (at::Tensor& tokens : added_) tokens = tokens.index_select(0, index);
  }

 private:
  // Runs whole sequences and fills the caches with them. Returns the logits after each, [B, vocab].
  at::Tensor logits_after(const MicroBatch& batch) {
    positions_ = CachePositions(batch.input_lengths, batch.lengths);
    const at::Tensor h = model_.embed(batch.input_ids);
    const DecoderPass pass = model_.start(context_, batch, h);
    const at::Tensor last = batch.packed ? batch.packed->starts.narrow(0, 1, batch.slots.size(0)) - 1
                                         : batch.input_lengths - 1 + batch.slots * batch.input_ids.size(1);
    return logits(through_layers(h, pass).flatten(0, 1).index_select(0, last));
  }
  // The prompts and what was added to them, in the order of the rows.
  MicroBatch so_far() const {
    const at::Tensor prompts = prompts_.input_ids.cpu().flatten(), added = at::stack(added_, 1).cpu();
    EffectiveBatch batch;
    std::vector<int64_t> slots;
    for (size_t row = 0; row < prompt_of_.size(); row++) {
      const auto first = prompts_.lengths.begin(), own = first + static_cast<int64_t>(prompt_of_[row]);
      const int64_t start = prompts_.packed ? std::accumulate(first, own, int64_t{0})
                                            : (own - first) * prompts_.input_ids.size(1);
      const at::Tensor ids = at::cat({prompts.narrow(0, start, *own), added[static_cast<int64_t>(row)]});
      const auto* values = ids.const_data_ptr<int64_t>();
      batch.samples.push_back({std::vector<int32_t>(values, values + ids.numel()), {}});
      slots.push_back(static_cast<int64_t>(row));
    }
    return collate(batch, slots, model_.collate_options(), slots_.device());
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
  std::vector<size_t> prompt_of_;  // each row's
  std::vector<at::Tensor> added_;  // tokens [B], one after another; of type longrope only
};

std::unique_ptr<Generation> Decoder::generate(const MicroBatch& prompts) const {
  return std::make_unique<DecoderGeneration>(*this, prompts);
}

}  // namespace trainer
