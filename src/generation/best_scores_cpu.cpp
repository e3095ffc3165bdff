#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "generation/best_scores.h"

namespace trainer {
namespace {

constexpr int64_t kScoreBlock = 256;  // scores that are passed over together if none is good enough

TRAINER_VECTORISED float largest_of_block(const float* __restrict__ x) {
  constexpr int64_t lanes = 16;
  float largest[lanes];
  for (int64_t lane = 0; lane < lanes; lane++) largest[lane] = x[lane];
  for (int64_t i = lanes; i < kScoreBlock; i += lanes) {
    for (int64_t lane = 0; lane < lanes; lane++)
      largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
  }
  return *std::max_element(largest, largest + lanes);
}

// The best so far, best first.
class BestOfSearch {
 public:
  BestOfSearch(float* scores, int64_t* places, int64_t count)
      : scores_(scores), places_(places), count_(count) {}

  bool takes(float score) const { return found_ < count_ || score > scores_[count_ - 1]; }
  void add(float score, int64_t place) {
    if (!takes(score)) return;
    int64_t at = found_ < count_ ? found_++ : count_ - 1;
    for (; at > 0 && score > scores_[at - 1]; at--) {
      scores_[at] = scores_[at - 1];
      places_[at] = places_[at - 1];
    }
    scores_[at] = score;
    places_[at] = place;
  }

 private:
  float* scores_;
  int64_t* places_;
  int64_t count_, found_ = 0;
};

}  // namespace

std::pair<at::Tensor, at::Tensor> best_scores(const at::Tensor& log_probs, const std::vector<float>& so_far,
                                              int64_t beams, int64_t count) {
  const at::Tensor rows = log_probs.contiguous();
  const int64_t vocab = rows.size(1), searches = rows.size(0) / beams;
  at::Tensor scores = at::empty({searches, count}, rows.options());
  at::Tensor places = at::empty({searches, count}, rows.options().dtype(at::kLong));
  const float* const from = rows.const_data_ptr<float>();
  float* const to_scores = scores.mutable_data_ptr<float>();
  int64_t* const to_places = places.mutable_data_ptr<int64_t>();
  at::parallel_for(0, searches, 1, [&](int64_t begin, int64_t end) {
    for (int64_t search = begin; search < end; search++) {
      BestOfSearch best(to_scores + search * count, to_places + search * count, count);
      for (int64_t beam = 0; beam < beams; beam++) {
        const int64_t row = search * beams + beam;
        const float* const x = from + row * vocab;
        const float before = so_far[static_cast<size_t>(row)];
        for (int64_t i = 0; i < vocab; i += kScoreBlock) {
          const int64_t last = std::min(i + kScoreBlock, vocab);
          if (last == i + kScoreBlock && !best.takes(largest_of_block(x + i) + before)) continue;
          for (int64_t j = i; j < last; j++) best.add(x[j] + before, beam * vocab + j);
        }
      }
    }
  });
  return {scores, places};
}

}  // namespace trainer
