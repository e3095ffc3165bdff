#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "models/decoder.h"
#include "models/layer_extras.h"
#include "models/repeated_step.h"
#include "nn/few_rows_linear.h"

namespace trainer {

class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, at::Device device)
      : model_(model), rows_(device), caches_(model.body_.layers.size()) {}

  // The prompts are laid out as in training.
  at::Tensor add(const MicroBatch& prompts) override {
    remember(prompts);
    return logits_after(prompts);
  }

  // Rotary embedding of type dynamic: a key keeps the rotation that it got first, as in Transformers. Of type
  // longrope: all keys are computed again when a sequence begins to need the long factors, as in
  // Transformers' Phi-3.
  at::Tensor next(const at::Tensor& tokens) override {
    if (is_longrope()) append(tokens);
    if (std::ranges::any_of(rows_.lengths(),
                            [&](int64_t n) { return model_.rotary_.invalidates_keys(n + 1); })) {
      rows_.clear();
      return logits_after(so_far(tokens.device()));
    }
    context_.few_rows = true;
    rows_.count_up();
    const auto step = [this, lengths = rows_.lengths()](const at::Tensor& last) {
      return step_of(last, lengths);
    };
    return is_repeated() ? repeated_.run(rows_.form(), tokens, rows_.table(), step) : step(tokens);
  }

  void select(const std::vector<int64_t>& rows) override {
    if (is_longrope()) {
      std::vector<std::vector<int32_t>> so_far;
      for (const int64_t row : rows) so_far.push_back(so_far_[static_cast<size_t>(row)]);
      so_far_ = std::move(so_far);
    }
    rows_.select(rows);
    if (model_.c_.recurrent.empty()) return;
    const at::Tensor index = at::tensor(rows, at::kLong).to(rows_.table().device());
    for (KvCache& cache : caches_) cache.select_states(index);
  }

 private:
  // Whether a step differs from the one before only in what lies on the device.
  bool is_repeated() const {
    const auto fixed = [](const std::optional<Rotary>& rotary) {
      return !rotary || rotary->has_fixed_frequencies();
    };
    return model_.rotary_.has_fixed_frequencies() && fixed(model_.sliding_rotary_) &&
           model_.c_.query_growth_beta == 0 && model_.c_.recurrent.empty() && !model_.around_block;
  }

  at::Tensor step_of(const at::Tensor& tokens, const std::vector<int64_t>& lengths) {
    const at::Tensor places = rows_.lengths_there().to(at::kLong).unsqueeze(1);
    rows_.advance_table();
    const at::Tensor h = model_.embed(tokens.unsqueeze(1)),
                     slots = at::arange(rows_.size(), tokens.options());
    DecoderPass pass = model_.start(context_, slots, h, places, lengths);
    pass.cache_rows = &rows_;
    return logits(through_layers(tokens.unsqueeze(1), h, pass).select(1, 0));
  }

  bool is_longrope() const { return model_.c_.rope.type == RopeType::longrope; }

  // Adds whole sequences, and returns the logits after each, [B, vocab].
  at::Tensor logits_after(const MicroBatch& batch) {
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
    const at::Tensor last = batch.packed
                                ? batch.packed->starts.narrow(0, 1, std::ssize(batch.lengths)) - 1
                                : batch.input_lengths - 1 +
                                      at::arange(std::ssize(batch.lengths), batch.input_lengths.options()) *
                                          batch.input_ids.size(1);
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
  MicroBatch so_far(at::Device device) const {
    EffectiveBatch batch;
    for (const std::vector<int32_t>& tokens : so_far_) batch.samples.push_back({tokens, {}});
    std::vector<int64_t> slots(so_far_.size());
    std::iota(slots.begin(), slots.end(), int64_t{0});
    return collate(batch, slots, model_.collate_options(), device);
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
  CacheRows rows_;
  RepeatedStep repeated_;
  std::vector<KvCache> caches_;
  std::vector<std::vector<int32_t>> so_far_;
};

std::unique_ptr<Generation> Decoder::generate(at::Device device) const {
  return std::make_unique<DecoderGeneration>(*this, device);
}

}  // namespace trainer
