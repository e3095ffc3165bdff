#include <ATen/ATen.h>

#include "models/decoder.h"

namespace trainer {

class DecoderGeneration : public Generation {
 public:
  DecoderGeneration(const Decoder& model, const at::Tensor& ids)
      : model_(model), slots_(at::arange(ids.size(0), ids.options())), caches_(model.body_.layers.size()) {}

  at::Tensor next_logits(const at::Tensor& tokens) override {
    at::Tensor h = model_.embed(tokens);
    const DecoderPass pass = model_.start(context_, slots_, h, position_);
    position_ += tokens.size(1);
    for (size_t i = 0; i < caches_.size(); i++) h = model_.body_.layers[i]->forward(h, pass, &caches_[i]);
    h = model_.body_.norm.forward(h.select(1, -1));
    return at::linear(h, model_.output_weight()).to(at::kFloat);
  }

 private:
  const Decoder& model_;
  ForwardContext context_;
  at::Tensor slots_;
  std::vector<LayerCache> caches_;
  int64_t position_ = 0;
};

std::unique_ptr<Generation> Decoder::generate(const at::Tensor& input_ids, const at::Tensor&) const {
  return std::make_unique<DecoderGeneration>(*this, input_ids);
}

}  // namespace trainer
