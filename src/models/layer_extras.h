// What some models' layers take besides the residual stream: an embedding of the tokens for each layer, and
// the keys and values of an earlier layer (Gemma 4 E2B and E4B). Tested against transformers, models/gemma4.
// Shapes: as in decoder.h; P per_layer_size.
#pragma once

#include <array>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/nn/linear.h"

#include "models/decoder.h"
#include "nn/embedding.h"
#include "nn/norm.h"

namespace trainer {

// The embeddings for each layer: one table of all, plus a projection of the usual embedding.
class PerLayerInputs {
 public:
  PerLayerInputs(Module& body, const DecoderConfig& c);
  // Takes ids [B, S] and their usual embedding [B, S, D]; returns [B, S, P] for each layer.
  std::vector<at::Tensor> forward(const at::Tensor& ids, const at::Tensor& embedded,
                                  const DecoderPass& pass) const;

 private:
  int64_t size_;
  double projection_scale_;
  Embedding table_;
  Linear projection_;
  RmsNorm norm_;
};

// How a layer adds its own embedding to the stream.
class PerLayerGate {
 public:
  PerLayerGate(Module& layer, const DecoderConfig& c);
  // Takes h [B, S, D] and the pass's layer_input; returns what is added, [B, S, D].
  at::Tensor forward(const at::Tensor& h, const DecoderPass& pass) const;

 private:
  Activation activation_;
  Linear gate_, projection_;
  RmsNorm norm_;
};

// What is given from layer to layer in one pass.
class LayerExtras {
 public:
  LayerExtras(const DecoderConfig& c, const DecoderBody& body, const at::Tensor& ids,
              const at::Tensor& embedded, const DecoderPass& pass);
  bool any() const { return c_.per_layer_size > 0 || c_.layers_sharing_keys > 0; }
  // Sets what the pass has for this layer.
  void give(DecoderPass& pass, size_t layer);

 private:
  const DecoderConfig& c_;
  std::vector<at::Tensor> inputs_;
  std::array<SharedKeys, 2> shared_;  // of full layers, of those with a window
};

// Runs the layer so that backward runs it again (nn/checkpoint.h). Returns its result, h [B, S, D].
at::Tensor recomputed_with_extras(const DecoderLayer& layer, const at::Tensor& h, const DecoderPass& pass,
                                  const EnterBlock& enter);

}  // namespace trainer
