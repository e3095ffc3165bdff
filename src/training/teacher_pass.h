// What a teacher says of the samples of a data set: the likeliest tokens at each place that is learned.
#pragma once

#include <cstdint>

#include "trainer/data/dataset.h"
#include "trainer/models/model.h"
#include "trainer/training/evaluate.h"

#include "data/stored_logits.h"

namespace trainer {

struct TeacherPass {
  const Model& model;
  const Dataset& dataset;
  const Config& config;  // data.* and training.eval_batch_size
  at::Device device;
  int64_t top = 0;    // tokens at a place
  int64_t vocab = 0;  // only ids below are named; the others belong to the rest
  int64_t known = 0;  // tokens that the teacher knows
  BatchBudget& budget;

  // Of the rows [begin, end), in micro-batches of eval_batch_size, and smaller ones where they do not fit.
  // Throws DataError for a row with a token that the teacher does not know.
  LogitsOfRows rows(int64_t begin, int64_t end) const;
};

}  // namespace trainer
