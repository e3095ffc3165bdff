#include <ATen/ATen.h>

#include "trainer/nn/dropout.h"

#include "models/t5.h"

namespace trainer {

class T5Generation : public Generation {
 public:
  T5Generation(const T5& model, const at::Tensor& ids, const at::Tensor& lengths)
      : model_(model), slots_(at::arange(ids.size(0), ids.options())), lengths_(lengths) {
    source_rows_ = row_keys(slots_, ids.size(1));
    encoded_ = model_.encode(ids, lengths, source_rows_, context_, 0);
    caches_.resize(model_.decoder_.blocks.size());
  }

  at::Tensor next_logits(const at::Tensor& tokens) override {
    T5Pass pass = model_.start(context_, row_keys(slots_, tokens.size(1)));
    pass.source_rows = source_rows_;
    pass.source_lengths = lengths_;
    at::Tensor h = model_.embed(tokens);
    position_ += tokens.size(1);
    model_.decoder_.prepare(pass, h, position_);
    for (size_t i = 0; i < caches_.size(); i++) {
      h = model_.decoder_.blocks[i]->forward(h, encoded_, pass, &caches_[i]);
    }
    h = model_.scaled(model_.decoder_.final_layer_norm.forward(h.select(1, -1)));
    return at::linear(h, model_.output_weight()).to(at::kFloat);
  }

 private:
  const T5& model_;
  ForwardContext context_;
  at::Tensor slots_, lengths_, source_rows_, encoded_;
  std::vector<T5BlockCache> caches_;
  int64_t position_ = 0;
};

std::unique_ptr<Generation> T5::generate(const at::Tensor& input_ids, const at::Tensor& lengths) const {
  return std::make_unique<T5Generation>(*this, input_ids, lengths);
}

}  // namespace trainer
