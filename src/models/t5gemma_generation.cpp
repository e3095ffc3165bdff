#include <algorithm>
#include <iterator>

#include <ATen/ATen.h>

#include "models/repeated_step.h"
#include "models/t5gemma.h"
#include "nn/few_rows_linear.h"
#include "ops/dropout.h"

namespace trainer {

// In T5Gemma 2 the keys and values of a source are the first positions of its row; in T5Gemma they lie apart.
class T5GemmaGeneration : public Generation {
 public:
  T5GemmaGeneration(const T5Gemma& model, at::Device device)
      : model_(model),
        second_(model.c_.second),
        rows_(device),
        source_rows_(device, CacheRows::Grow::no),
        caches_(model.decoder_.layers.size()) {}

  // The new rows begin with the start token in the next step.
  at::Tensor add(const MicroBatch& sources) override {
    context_.few_rows = are_few_rows(sources.lengths);
    CacheRows& of_sources = second_ ? rows_ : source_rows_;
    const int64_t first = of_sources.size();
    of_sources.add(sources.lengths);
    if (!second_) rows_.add(std::vector<int64_t>(sources.lengths.size(), 0));
    const at::Tensor lengths = of_sources.lengths_there().narrow(0, first, std::ssize(sources.lengths));
    source_lengths_ = first == 0 ? lengths.clone() : at::cat({source_lengths_, lengths});
    const Encoded encoded = model_.encode(sources, context_, 0, T5Gemma::Sources::one_by_one);
    for (size_t i = 0; i < caches_.size(); i++) {
      const T5GemmaLayer& layer = *model_.decoder_.layers[i];
      const auto entered = model_.enter(layer);
      const auto [k, v] = layer.of_source().source_keys(encoded.states, encoded.rows, context_);
      KvCache& to = second_ ? caches_[i].self : caches_[i].cross;
      to.put(of_sources, first, k, v, sources.packed.has_value());
    }
    return {};
  }

  at::Tensor next(const at::Tensor& tokens) override {
    context_.few_rows = true;
    rows_.count_up();
    const auto step = [this](const at::Tensor& last) { return step_of(last); };
    const bool fixed = model_.decoder_.has_fixed_frequencies() && !model_.around_block;
    return fixed ? repeated_.run(form(), tokens, rows_.table(), step) : step(tokens);
  }

  void select(const std::vector<int64_t>& rows) override {
    const at::Tensor index = at::tensor(rows, at::kLong).to(source_lengths_.device()),
                     lengths = source_lengths_.index_select(0, index);
    if (lengths.sizes() == source_lengths_.sizes()) {
      source_lengths_.copy_(lengths);  // where a recorded step reads them
    } else {
      source_lengths_ = lengths;
    }
    rows_.select(rows);
    if (!second_) source_rows_.select(rows, CacheRows::Repeated::share_the_slot);
  }

 private:
  RepeatedStep::Form form() const {
    RepeatedStep::Form form = rows_.form();
    if (!second_) std::ranges::copy(source_rows_.form(), std::back_inserter(form));
    form.push_back(reinterpret_cast<int64_t>(source_lengths_.const_data_ptr()));
    return form;
  }

  at::Tensor step_of(const at::Tensor& tokens) {
    const at::Tensor before = rows_.lengths_there();
    const at::Tensor places = (second_ ? before - source_lengths_ : before).to(at::kLong);
    rows_.advance_table();
    T5GemmaPass pass = model_.start(context_, row_keys(at::arange(rows_.size(), tokens.options()), 1));
    pass.cache_rows = &rows_;
    pass.cached_sources = &source_rows_;
    pass.source_lengths = source_lengths_;
    const at::Tensor embedded = model_.decoder_.embed(tokens.unsqueeze(1), model_.dtype());
    model_.decoder_.rotate(pass, places.unsqueeze(1), embedded.options());
    ResidualStream h(embedded);
    for (size_t i = 0; i < caches_.size(); i++) {
      const T5GemmaLayer& layer = *model_.decoder_.layers[i];
      const auto entered = model_.enter(layer);
      layer.forward(h, std::nullopt, pass, &caches_[i]);
    }
    const at::Tensor last = model_.decoder_.finish(h.sum().select(1, 0), {}, pass);
    return model_.head().next_logits(model_.head().states(last, at::Tensor(), context_));
  }

  const T5Gemma& model_;
  bool second_;
  ForwardContext context_;
  CacheRows rows_, source_rows_;
  RepeatedStep repeated_;
  at::Tensor source_lengths_;  // of each row, int32 [rows]
  std::vector<T5GemmaCache> caches_;
};

std::unique_ptr<Generation> T5Gemma::generate(at::Device device) const {
  return std::make_unique<T5GemmaGeneration>(*this, device);
}

}  // namespace trainer
