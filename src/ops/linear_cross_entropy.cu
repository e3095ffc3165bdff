// The loss of each row of logits, and its gradient in their place (src/ops/linear_cross_entropy.h). Open:
// Element, the gradient's type, and kWidth.
#include "device/prelude.cuh"

struct LossTerms {
  int vocab;   // logits of a row
  int stride;  // floats from row to row, a multiple of kWidth
  float soft_cap, smoothing, z_loss, focal_gamma, share;
};

// The logit, capped if there is a cap, and the derivative of that.
DEVICE float capped(float x, float soft_cap, float& slope) {
  slope = 1.0f;
  if (soft_cap <= 0.0f) return x;
  const float bent = tanhf(x / soft_cap);
  slope = 1.0f - bent * bent;
  return bent * soft_cap;
}

// One block per row. correct, unless nullptr, gets 1 where the label has the largest logit (the first of
// equal ones), else 0. log_p and log_z, unless nullptr, get the logarithms of the label's probability and of
// the sum of all e^logit. `weights`, unless nullptr, multiplies loss and gradient of each row. Each gradient
// has `of_p` times the probability besides, unless that is nullptr. With
// `gradient`, the first half of a row's bytes becomes its gradient if Element is bf16, and the whole row if
// it is fp32.
KERNEL loss_of_rows(float* logits, const long long* labels, float* loss, long long* correct,
                    const float* weights, float* log_p, float* log_z, const float* of_p, LossTerms terms,
                    int gradient) {
  float* row = logits + static_cast<long long>(blockIdx.x) * terms.stride;
  const int vocab = terms.vocab, first = threadIdx.x * kWidth, step = blockDim.x * kWidth;
  const long long label = labels[blockIdx.x];
  float of_label = __int_as_float(0x7fc00000), slope;  // no such label: the loss is NaN
  if (label >= 0 && label < vocab) of_label = capped(row[label], terms.soft_cap, slope);

  // The largest logit so far, and the sum of all e^(logit - largest).
  float most = -3.4e38f, sum = 0.0f, total = 0.0f, above = 0.0f;
  for (int c = first; c < vocab; c += step) {
    const auto from = load<kWidth>(row + c);
    float z[kWidth], most_here = most;
    for (int k = 0; k < kWidth; k++) {
      if (c + k < vocab) {
        z[k] = capped(from.at[k], terms.soft_cap, slope);
        total += z[k];
        if (!(z[k] < of_label || (z[k] == of_label && c + k >= label))) above = 1.0f;
      } else {
        z[k] = -__int_as_float(0x7f800000);
      }
      most_here = Most::of(z[k], most_here);
    }
    sum *= expf(most - most_here);
    most = most_here;
    for (int k = 0; k < kWidth; k++) sum += expf(z[k] - most);
  }
  const float largest = over_block<Most>(most);
  const float normaliser = over_block<Sum>(sum * expf(most - largest));
  if (terms.smoothing > 0.0f) total = over_block<Sum>(total);
  if (correct != nullptr) above = over_block<Most>(above);
  const float weight = weights != nullptr ? weights[blockIdx.x] : 1.0f;
  const float log_normaliser = logf(normaliser), log_sum = log_normaliser + largest;
  const float log_of_label = of_label - largest - log_normaliser;
  float focal = 1.0f, focal_slope = 1.0f;  // focal_factors()
  if (terms.focal_gamma > 0.0f) {
    const float rest = -expm1f(log_of_label);
    focal = rest > 0.0f ? powf(rest, terms.focal_gamma) : 0.0f;
    focal_slope =
        rest > 0.0f ? focal - terms.focal_gamma * focal / rest * expf(log_of_label) * log_of_label : 0.0f;
  }
  if (threadIdx.x == 0) {
    float value = log_normaliser + (1.0f - terms.smoothing) * (largest - of_label);
    if (terms.focal_gamma > 0.0f) value += (1.0f - terms.smoothing) * (1.0f - focal) * log_of_label;
    if (terms.smoothing > 0.0f) value += terms.smoothing * (largest - total / static_cast<float>(vocab));
    value *= terms.share;
    if (terms.z_loss > 0.0f) value += terms.z_loss * log_sum * log_sum;
    loss[blockIdx.x] = value * weight;
    if (log_p != nullptr) log_p[blockIdx.x] = log_of_label;
    if (log_z != nullptr) log_z[blockIdx.x] = log_sum;
    if (correct != nullptr) correct[blockIdx.x] = above > 0.0f ? 0 : 1;
  }
  if (!gradient) return;

  const float of_one = terms.share * (1.0f - terms.smoothing) * focal_slope;
  float inverse = 1.0f / normaliser, times = terms.share;
  if (terms.focal_gamma > 0.0f) times = of_one + terms.share * terms.smoothing;
  if (terms.z_loss > 0.0f) times += 2.0f * terms.z_loss * log_sum;  // the slope of log_sum^2
  if (of_p != nullptr) times += of_p[blockIdx.x];
  inverse *= times;
  const float spread = terms.share * terms.smoothing / static_cast<float>(vocab);
  Element* to = reinterpret_cast<Element*>(row);
  for (int begin = 0; begin < vocab; begin += step) {
    const int c = begin + first;
    Pack<Element, kWidth> out;
    if (c < vocab) {
      const auto from = load<kWidth>(row + c);
      for (int k = 0; k < kWidth; k++) {
        float g = expf(capped(from.at[k], terms.soft_cap, slope) - largest) * inverse - spread;
        if (c + k == label) g -= of_one;
        out.at[k] = narrow<Element>(g * slope * weight);
      }
    }
    // These stores overwrite logits that this round or an earlier one has read.
    if (sizeof(Element) < sizeof(float)) __syncthreads();
    if (c < vocab) store<kWidth>(to + c, out);
  }
}
