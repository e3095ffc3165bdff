#include "trainer/models/model.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "base/random.h"
#include "data/upload.h"
#include "nn/embedding.h"
#include "ops/embedding_noise.h"

namespace trainer {

at::Tensor noisy(const at::Tensor& embedded, const MicroBatch& batch, const at::Tensor& row_keys,
                 const ForwardContext& context) {
  if (!context.training || context.embedding_noise <= 0) return embedded;
  const at::Device device = embedded.device();
  Upload upload(device);
  const at::Tensor sizes =
      upload(host_vector(noise_sizes(batch.lengths, context.embedding_noise, embedded.size(-1),
                                     batch.packed ? 0 : embedded.size(1)),
                         device));
  upload.wait();
  return with_noise(embedded, row_keys, sizes, derive(0, "noise of embeddings"));
}

// Adapters and copies also have a row for each token.
static void refuse_adapted_vocabulary(Model& model) {
  const std::vector<Parameter*> vocabulary = model.vocabulary();
  model.for_each_module([&](const std::string& name, Module& module) {
    const auto* embedding = dynamic_cast<const Embedding*>(&module);
    const auto* linear = dynamic_cast<const Linear*>(&module);
    const bool copy = embedding != nullptr && &embedding->table() == &embedding->weight &&
                      std::ranges::find(vocabulary, &embedding->weight) == vocabulary.end();
    if (copy || (embedding != nullptr && embedding->lora) ||
        (linear != nullptr && linear->lora && name == "lm_head")) {
      throw ConfigError(
          concat("model.add_tokens: the adapter changes ", name,
                 ", so its table cannot get more rows; merge the adapter first (trainer merge)"));
    }
  });
}

void resize_vocabulary(Model& model, int64_t rows) {
  refuse_adapted_vocabulary(model);
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : model.vocabulary()) {
    const int64_t old = parameter->shape[0];
    if (rows == old) continue;
    const at::Tensor& value = parameter->value.tensor();
    const at::Tensor mean = value.mean(0, /*keepdim=*/true, at::kFloat).to(value.scalar_type());
    const bool trained = parameter->trained();
    parameter->value = at::cat({value, mean.expand({rows - old, -1})}).set_requires_grad(trained);
    parameter->shape[0] = rows;
  }
}

}  // namespace trainer
