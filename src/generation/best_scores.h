// The best continuations of a beam search.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Takes log_probs [searches * beams, vocab], fp32 on the CPU, and the score of each beam so far. Returns for
// each search its `count` best sums of both, best first, fp32 [searches, count], and their places among its
// beams' tokens, int64. Of equal ones the first comes first. `count` is at most beams * vocab.
std::pair<at::Tensor, at::Tensor> best_scores(const at::Tensor& log_probs, const std::vector<float>& so_far,
                                              int64_t beams, int64_t count);

}  // namespace trainer
