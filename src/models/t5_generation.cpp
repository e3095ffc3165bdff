#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>

#include "models/repeated_step.h"
#include "models/t5.h"
#include "nn/few_rows_linear.h"
#include "ops/dropout.h"

namespace trainer {

class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, at::Device device)
      : model_(model),
        rows_(device),
        source_rows_(device, CacheRows::Grow::no),
        caches_(model.decoder_.blocks.size()) {}

  // The new rows have nothing yet: they begin with the start token in the next step.
  at::Tensor add(const MicroBatch& sources) override {
    context_.few_rows = are_few_rows(sources.lengths);
    const Encoded encoded = model_.encode(sources, context_, 0);
    const int64_t first = source_rows_.size();
    source_rows_.add(sources.lengths);
    rows_.add(std::vector<int64_t>(sources.lengths.size(), 0));
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      const auto [k, v] =
          model_.decoder_.blocks[i]->cross->part.source_keys(encoded.states, encoded.rows, context_);
      caches_[i].cross.put(source_rows_, first, k, v, sources.packed.has_value());
    }
    return {};
  }

  at::Tensor next(const at::Tensor& tokens) override {
    context_.few_rows = true;
    rows_.count_up();
    make_biases();
    const auto step = [this](const at::Tensor& last) { return step_of(last); };
    if (model_.around_block) return step(tokens);
    RepeatedStep::Form form = rows_.form();
    std::ranges::copy(source_rows_.form(), std::back_inserter(form));
    return repeated_.run(form, tokens, rows_.table(), step);
  }

  void select(const std::vector<int64_t>& rows) override {
    rows_.select(rows);
    source_rows_.select(rows, CacheRows::Repeated::share_the_slot);
  }

 private:
  at::Tensor step_of(const at::Tensor& tokens) {
    rows_.advance_table();
    T5Pass pass = model_.start(context_, row_keys(at::arange(rows_.size(), tokens.options()), 1));
    pass.cache_rows = &rows_;
    pass.cached_sources = &source_rows_;
    ResidualStream h(model_.decoder_embed_.forward(tokens.unsqueeze(1), model_.dtype()));
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto entered = model_.enter(*model_.decoder_.blocks[i]);
      model_.decoder_.blocks[i]->forward(h, at::Tensor(), pass, &caches_[i]);
    }
    const at::Tensor last = h.normed(model_.decoder_.final_layer_norm).select(1, 0);
    return model_.head().next_logits(model_.head().states(last, at::Tensor(), context_));
  }

  // The bias of each distance for which there is room.
  void make_biases() {
    if (biased_ >= rows_.room()) return;
    biased_ = rows_.room();
    for (size_t i = 0; i < caches_.size(); i++) {
      const auto& own = model_.decoder_.blocks[i]->self.part.relative_attention_bias;
      const auto of_distances = [&] {  // those of the last query, its own key first
        const at::Tensor of_keys = own->bias(1, biased_, biased_ - 1, model_.dtype()).select(2, 0)[0];
        const at::Tensor back = at::arange(biased_ - 1, -1, -1, of_keys.options().dtype(at::kLong));
        return of_keys.index_select(1, back).to(at::kFloat);
      };
      caches_[i].bias = own ? of_distances() : caches_[0].bias;
    }
  }

  const T5& model_;
  ForwardContext context_;
  CacheRows rows_, source_rows_;
  RepeatedStep repeated_;
  int64_t biased_ = 0;  // distances
  std::vector<T5BlockCache> caches_;
};

std::unique_ptr<Generation> T5::generate(at::Device device) const {
  return std::make_unique<T5Generation>(*this, device);
}

}  // namespace trainer
