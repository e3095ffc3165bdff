#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "models/decoder.h"
#include "models/layer_extras.h"
#include "nn/few_rows_linear.h"

namespace trainer {

// On the CPU the caches have slots (models/cache_rows.h), and prompts can be added; on a GPU, and where
// layers keep a state instead of keys, a row for each prompt.
class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, const MicroBatch& prompts)
      : model_(model),
        prompts_(prompts),
        slots_(prompts.slots),
        in_slots_(caches_have_slots(slots_.device()) && model.c_.recurrent.empty()),
        positions_(prompts.input_lengths, prompts.lengths),
        caches_(model.body_.layers.size()) {}

  // The prompts are laid out as in training. What the cache has after the end of a prompt is masked until new
  // tokens overwrite it.
  at::Tensor start(int64_t start_token) override {
    const MicroBatch prompts = std::move(prompts_);
    if (in_slots_) return add(prompts, start_token);
    remember(prompts);
    return logits_after(prompts);
  }

  bool takes_more() const override { return in_slots_; }

  at::Tensor add(const MicroBatch& prompts, int64_t) override {
    remember(prompts);
    return cached_logits_after(prompts);
  }

  // Rotary embedding of type dynamic: a key keeps the rotation that it got first, as in Transformers. Of type
  // longrope: all keys are computed again when a sequence begins to need the long factors, as in
  // Transformers' Phi-3.
  at::Tensor next(const at::Tensor& tokens) override {
    if (is_longrope()) append(tokens);
    const auto invalidates_keys = [&](int64_t n) { return model_.rotary_.invalidates_keys(n + 1); };
    if (std::ranges::any_of(in_slots_ ? rows_.lengths() : positions_.lengths_on_host(), invalidates_keys)) {
      if (!in_slots_) return logits_after(so_far());
      rows_.clear();
      return cached_logits_after(so_far());
    }
    return in_slots_ ? next_cached(tokens) : next_masked(tokens);
  }

  void select(const std::vector<int64_t>& rows) override {
    if (is_longrope()) {
      std::vector<std::vector<int32_t>> so_far;
      for (const int64_t row : rows) so_far.push_back(so_far_[static_cast<size_t>(row)]);
      so_far_ = std::move(so_far);
    }
    if (in_slots_) return rows_.select(rows);
    positions_.select(rows);
    slots_ = at::arange(static_cast<int64_t>(rows.size()), slots_.options());
    const at::Tensor index = at::tensor(rows, at::kLong).to(slots_.device());
    for (KvCache& cache : caches_) cache.select(index);
  }

 private:
  bool is_longrope() const { return model_.c_.rope.type == RopeType::longrope; }

  at::Tensor next_cached(const at::Tensor& tokens) {
    context_.few_rows = true;
    const at::Tensor h = model_.embed(tokens.unsqueeze(1));
    const std::vector<int64_t> places = rows_.lengths();
    rows_.advance();
    const at::Tensor slots = at::arange(rows_.size(), slots_.options());
    DecoderPass pass =
        model_.start(context_, slots, h, at::tensor(places, at::kLong).unsqueeze(1), rows_.lengths());
    pass.cache_rows = &rows_;
    return logits(through_layers(tokens.unsqueeze(1), h, pass).select(1, 0));
  }

  at::Tensor next_masked(const at::Tensor& tokens) {
    const at::Tensor h = model_.embed(tokens.unsqueeze(1));
    const at::Tensor each = positions_.lengths().unsqueeze(1);
    std::vector<int64_t> lengths = positions_.lengths_on_host();
    for (int64_t& length : lengths) length++;
    DecoderPass pass = model_.start(context_, slots_, h, positions_.equal() ? each[0] : each, lengths);
    pass.positions = &positions_;
    pass.mask = positions_.mask(h.scalar_type());
    if (model_.c_.sliding_window > 0)
      pass.window_mask = positions_.mask(h.scalar_type(), model_.c_.sliding_window);
    const at::Tensor out = through_layers(tokens.unsqueeze(1), h, pass);
    positions_.advance();
    return logits(out.select(1, 0));
  }

  // Run whole sequences and fill the caches with them: those of all rows, or of new ones. Return the logits
  // after each, [B, vocab].
  at::Tensor logits_after(const MicroBatch& batch) {
    positions_ = CachePositions(batch.input_lengths, batch.lengths);
    const at::Tensor h = model_.embed(batch.input_ids);
    return logits_at_ends(batch, through_layers(batch.input_ids, h, model_.start(context_, batch, h)));
  }
  at::Tensor cached_logits_after(const MicroBatch& batch) {
    context_.few_rows = are_few_rows(batch.lengths);
    const int64_t first = rows_.size();
    rows_.add(batch.lengths);
    const at::Tensor h = model_.embed(batch.input_ids);
    DecoderPass pass = model_.start(context_, batch, h);
    pass.cache_rows = &rows_;
    pass.first_row = first;
    return logits_at_ends(batch, through_layers(batch.input_ids, h, pass));
  }
  at::Tensor logits_at_ends(const MicroBatch& batch, const at::Tensor& out) const {
    const at::Tensor last = batch.packed ? batch.packed->starts.narrow(0, 1, batch.slots.size(0)) - 1
                                         : batch.input_lengths - 1 + batch.slots * batch.input_ids.size(1);
    return logits(out.flatten(0, 1).index_select(0, last));
  }

  // Of type longrope only: the tokens of each row, on the host.
  void remember(const MicroBatch& prompts) {
    if (!is_longrope()) return;
    const at::Tensor ids = prompts.input_ids.cpu().flatten();
    const int64_t* values = ids.const_data_ptr<int64_t>();
    for (const int64_t length : prompts.lengths) {
      so_far_.emplace_back(values, values + length);
      values += prompts.packed ? length : prompts.input_ids.size(1);
    }
  }
  void append(const at::Tensor& tokens) {
    const at::Tensor on_host = tokens.cpu();
    for (size_t row = 0; row < so_far_.size(); row++)
      so_far_[row].push_back(static_cast<int32_t>(on_host.const_data_ptr<int64_t>()[row]));
  }
  MicroBatch so_far() const {
    EffectiveBatch batch;
    for (const std::vector<int32_t>& tokens : so_far_) batch.samples.push_back({tokens, {}});
    std::vector<int64_t> slots(so_far_.size());
    std::iota(slots.begin(), slots.end(), int64_t{0});
    return collate(batch, slots, model_.collate_options(), slots_.device());
  }
  // ids [B, S], embedded [B, S, D] -> [B, S, D]
  at::Tensor through_layers(const at::Tensor& ids, const at::Tensor& embedded, DecoderPass pass) {
    LayerExtras extras(model_.c_, model_.body_, ids, embedded, pass);
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.body_.layers[i]);
      extras.give(pass, i);
      model_.body_.layers[i]->forward(h, pass, &caches_[model_.c_.keys_of(i)]);
    }
    return h.sum();
  }
  // [B, D] -> [B, vocab]
  at::Tensor logits(const at::Tensor& h) const {
    return model_.head().next_logits(
        model_.head().states(model_.body_.norm.forward(h), at::Tensor(), context_));
  }

  const Decoder& model_;
  ForwardContext context_;
  MicroBatch prompts_;  // until the start
  at::Tensor slots_;
  bool in_slots_;
  CachePositions positions_;  // on a GPU
  CacheRows rows_;            // on the CPU
  std::vector<KvCache> caches_;
  std::vector<std::vector<int32_t>> so_far_;
};

std::unique_ptr<Generation> Decoder::generate(const MicroBatch& prompts) const {
  return std::make_unique<DecoderGeneration>(*this, prompts);
}

}  // namespace trainer
