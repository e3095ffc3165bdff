// A larger vocabulary.
#pragma once

#include "trainer/models/model.h"

namespace trainer {

// Gives the embedding, and a separate head, `rows` rows (at least as many as they have): the new ones are the
// mean of the old. As Transformers' resize_token_embeddings, but for its random deviations from the mean.
// Throws ConfigError where an adapter is on one of them.
void resize_vocabulary(Model& model, int64_t rows);

}  // namespace trainer
