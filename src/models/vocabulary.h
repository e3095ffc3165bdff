// Enlarges a model's vocabulary.
#pragma once

#include "trainer/models/model.h"

namespace trainer {

// Gives the embedding, and a separate head, `rows` rows (at least as many as they have). New rows are the
// mean of the old ones, as in Transformers' resize_token_embeddings but without its random deviations from
// the mean. Throws ConfigError if one of them has an adapter.
void resize_vocabulary(Model& model, int64_t rows);

}  // namespace trainer
