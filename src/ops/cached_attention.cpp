#include "ops/cached_attention.h"

#include "device/op.h"

namespace trainer {
namespace {

constexpr Op kCachedAttention{"trainer::cached_attention", cached_attention_cpu};

}  // namespace

at::Tensor cached_attention(const at::Tensor& q, const NewKeys& added, const CachedKeys& keys,
                            const CachedScores& scores) {
  return kCachedAttention(q, added, keys, scores);
}

}  // namespace trainer
