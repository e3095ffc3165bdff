// AdamW's update on the CPU: our own loop.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/optim/adamw.h"

#include "base/vector_math.h"
#include "device/target_device.h"
#include "memory/offload.h"
#include "optim/adamw_coefficients.h"
#include "optim/element_types.h"

namespace trainer {
namespace {

template <bool with_master, class W, class G, class S>
TRAINER_VECTORISED void update_range(W* weight, const G* gradient, S* exp_avg, S* exp_avg_sq, float* master,
                                     float scale, const Coefficients& c, uint64_t key, int64_t begin,
                                     int64_t end) {
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int64_t i = begin; i < end; i++) {
    const uint32_t index = static_cast<uint32_t>(i);
    const uint32_t bits = random_bits(low, high, index), more_bits = random_bits(high, low, index);
    const float g = static_cast<float>(gradient[i]) * scale;
    const float m0 = static_cast<float>(exp_avg[i]);
    const float m = m0 + (g - m0) * c.one_minus_beta1;
    const float v = static_cast<float>(exp_avg_sq[i]) * c.beta2 + g * g * c.one_minus_beta2;
    const float w = (with_master ? master[i] : static_cast<float>(weight[i])) * c.keep;
    const float next = w - c.step_size * (m / (std::sqrt(v) / c.root_correction + c.epsilon));
    exp_avg[i] = rounded<S>(m, more_bits);
    exp_avg_sq[i] = rounded<S>(v, more_bits >> 16);
    if constexpr (with_master) {
      master[i] = next;
      weight[i] = static_cast<W>(next);
    } else {
      weight[i] = rounded<W>(next, bits);
    }
  }
}

// Those that lie in files (memory/offload.h).
std::vector<at::Tensor> offloaded_tensors(const AdamwTensors& t) {
  std::vector<at::Tensor> offloaded;
  for (const at::Tensor& tensor : {t.weight, t.gradient, t.exp_avg, t.exp_avg_sq, t.master}) {
    if (is_offloaded(tensor)) offloaded.push_back(tensor.view({-1}));
  }
  return offloaded;
}

template <class W, class G, class S>
void update_tensor(const AdamwTensors& t, float scale, const AdamwUpdate& update) {
  const Coefficients coefficients(update);
  W* w = t.weight.mutable_data_ptr<W>();
  const G* g = t.gradient.const_data_ptr<G>();
  S* m = t.exp_avg.mutable_data_ptr<S>();
  S* v = t.exp_avg_sq.mutable_data_ptr<S>();
  float* p = t.master.defined() ? t.master.mutable_data_ptr<float>() : nullptr;
  const auto update_some = [&](int64_t begin, int64_t end) {
    if (p != nullptr) {
      update_range<true>(w, g, m, v, p, scale, coefficients, update.key, begin, end);
    } else {
      update_range<false>(w, g, m, v, p, scale, coefficients, update.key, begin, end);
    }
  };
  // Tensors in files (memory.offload) are in memory one piece at a time.
  const std::vector<at::Tensor> offloaded = offloaded_tensors(t);
  const int64_t count = t.weight.numel(), piece = offloaded.empty() ? count : int64_t{1} << 22;
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t last = std::min(first + piece, count);
    at::parallel_for(first, last, 1 << 15, update_some);
    for (const at::Tensor& tensor : offloaded) release_offloaded(tensor.slice(0, first, last));
  }
}

void update_cpu(const AdamwTensors& tensors, const at::Tensor& gradient_scale, const AdamwUpdate& update,
                bool rehearsal) {
  AdamwTensors t = tensors;
  t.gradient = tensors.gradient.contiguous();  // the only allocation
  if (rehearsal) return;
  const float scale = gradient_scale.item<float>();
  with_type(t.weight, [&]<class W>() {
    with_type(t.gradient, [&]<class G>() {
      with_type(t.exp_avg, [&]<class S>() { update_tensor<W, G, S>(t, scale, update); });
    });
  });
}

}  // namespace

void adamw_update(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                  AdamwProgress& progress) {
  if (items.empty()) return;
  const at::Device device = items.front().tensors.weight.device();
  if (target_of(device) != c10::kCPU) return adamw_update_gpu(items, gradient_scale, progress);
  for (; progress.next < items.size(); progress.next++) {
    const auto& [tensors, update] = items[progress.next];
    if (progress.next + 1 < items.size()) {
      for (const at::Tensor& tensor : offloaded_tensors(items[progress.next + 1].tensors))
        fetch_offloaded(tensor);
    }
    update_cpu(tensors, gradient_scale, update, progress.rehearsal || device.is_meta());
  }
}

}  // namespace trainer
