// The update of 8-bit AdamW on the CPU: our own loops.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/optim/adamw_8bit.h"

#include "base/vector_math.h"
#include "device/target_device.h"
#include "memory/offload.h"
#include "optim/adamw_coefficients.h"
#include "optim/element_types.h"
#include "optim/moment_codes.h"

namespace trainer {
namespace {

struct Absmax {
  float exp_avg, exp_avg_sq;
};

// exp_avg, exp_avg_sq: in, the values of the codes; out, the moments. Returns the new scales. Magnitudes are
// compared as integers, which the compiler vectorises. A whole block, and not a part of it, has a loop of its
// own: the compiler knows its count.
template <bool with_master, bool whole, class W, class G>
TRAINER_VECTORISED Absmax update_block(W* weight, const G* gradient, float* master, float* exp_avg,
                                       float* exp_avg_sq, Absmax absmax, float scale,
                                       const Coefficients8bit& c, uint64_t key, int64_t first, int64_t part) {
  const int count = static_cast<int>(whole ? kAdamw8bitBlock : part);
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  uint32_t sum = static_cast<uint32_t>(first) * kRandomStride + low;
  uint32_t largest = 0, largest_sq = 0;
  for (int i = 0; i < count; i++, sum += kRandomStride) {
    const uint32_t bits = mixed_bits(sum, high);
    const float g = static_cast<float>(gradient[i]) * scale;
    const float m = exp_avg[i] * absmax.exp_avg * c.beta1 + c.one_minus_beta1 * g;
    const float v = exp_avg_sq[i] * absmax.exp_avg_sq * c.beta2 + c.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    largest = std::max(largest, std::bit_cast<uint32_t>(m) & 0x7fffffffu);
    largest_sq = std::max(largest_sq, std::bit_cast<uint32_t>(v));
    const float w = with_master ? master[i] : static_cast<float>(weight[i]);
    const float next = (w - c.step_size * (m / (std::sqrt(v) + c.epsilon))) * c.keep;
    if constexpr (with_master) {
      master[i] = next;
      weight[i] = static_cast<W>(next);
    } else {
      weight[i] = rounded<W>(next, bits);
    }
  }
  return {std::bit_cast<float>(largest), std::bit_cast<float>(largest_sq)};
}

// The moments of one block.
struct Block {
  alignas(64) std::array<float, kAdamw8bitBlock> exp_avg, exp_avg_sq;
};

void read_codes(const uint8_t* codes, const uint8_t* codes_sq, int64_t count, Block& block) {
  if (count == kAdamw8bitBlock) {
    coder_of_exp_avg().decode(std::span<const uint8_t, kAdamw8bitBlock>(codes, kAdamw8bitBlock),
                              block.exp_avg);
    coder_of_exp_avg_sq().decode(std::span<const uint8_t, kAdamw8bitBlock>(codes_sq, kAdamw8bitBlock),
                                 block.exp_avg_sq);
    return;
  }
  std::array<uint8_t, kAdamw8bitBlock> padded{}, padded_sq{};
  std::copy_n(codes, count, padded.begin());
  std::copy_n(codes_sq, count, padded_sq.begin());
  read_codes(padded.data(), padded_sq.data(), kAdamw8bitBlock, block);
}

void write_codes(uint8_t* codes, uint8_t* codes_sq, int64_t count, Block& block, Absmax absmax) {
  if (count == kAdamw8bitBlock) {
    coder_of_exp_avg().encode(block.exp_avg, inverse_scale(absmax.exp_avg),
                              CodeBlock(codes, kAdamw8bitBlock));
    coder_of_exp_avg_sq().encode(block.exp_avg_sq, inverse_scale(absmax.exp_avg_sq),
                                 CodeBlock(codes_sq, kAdamw8bitBlock));
    return;
  }
  std::array<uint8_t, kAdamw8bitBlock> padded, padded_sq;
  write_codes(padded.data(), padded_sq.data(), kAdamw8bitBlock, block, absmax);
  std::copy_n(padded.begin(), count, codes);
  std::copy_n(padded_sq.begin(), count, codes_sq);
}

template <bool with_master, class W, class G>
void update_blocks(const Adamw8bitTensors& t, float scale, const AdamwUpdate& update, int64_t begin,
                   int64_t end) {
  const Coefficients8bit coefficients(update);
  W* weight = t.weight.mutable_data_ptr<W>();
  const G* gradient = t.gradient.const_data_ptr<G>();
  uint8_t *codes = t.exp_avg.mutable_data_ptr<uint8_t>(),
          *codes_sq = t.exp_avg_sq.mutable_data_ptr<uint8_t>();
  float *absmax = t.exp_avg_absmax.mutable_data_ptr<float>(),
        *absmax_sq = t.exp_avg_sq_absmax.mutable_data_ptr<float>();
  float* master = with_master ? t.master.mutable_data_ptr<float>() : nullptr;
  std::array<Block, 2> blocks;
  const auto count_of = [&](int64_t b) {
    return std::min(kAdamw8bitBlock, t.weight.numel() - b * kAdamw8bitBlock);
  };
  const auto write_block = [&](int64_t b) {
    const int64_t first = b * kAdamw8bitBlock;
    write_codes(codes + first, codes_sq + first, count_of(b), blocks[static_cast<size_t>(b % 2)],
                {absmax[b], absmax_sq[b]});
  };
  // A block is written after the next one's update, so that the processor need not wait for the scales.
  for (int64_t b = begin; b < end; b++) {
    const int64_t first = b * kAdamw8bitBlock, count = count_of(b);
    Block& block = blocks[static_cast<size_t>(b % 2)];
    read_codes(codes + first, codes_sq + first, count, block);
    const auto update_this = count == kAdamw8bitBlock ? update_block<with_master, true, W, G>
                                                      : update_block<with_master, false, W, G>;
    const Absmax now = update_this(weight + first, gradient + first, with_master ? master + first : nullptr,
                                   block.exp_avg.data(), block.exp_avg_sq.data(), {absmax[b], absmax_sq[b]},
                                   scale, coefficients, update.key, first, count);
    absmax[b] = now.exp_avg;
    absmax_sq[b] = now.exp_avg_sq;
    if (b > begin) write_block(b - 1);
  }
  if (end > begin) write_block(end - 1);
}

template <class W, class G>
void update_coded_tensor(const Adamw8bitTensors& t, float scale, const AdamwUpdate& update) {
  at::parallel_for(0, adamw_8bit_blocks(t.weight.numel()), 1 << 7, [&](int64_t begin, int64_t end) {
    if (t.master.defined()) {
      update_blocks<true, W, G>(t, scale, update, begin, end);
    } else {
      update_blocks<false, W, G>(t, scale, update, begin, end);
    }
  });
}

void update_coded_cpu(const Adamw8bitTensors& tensors, const at::Tensor& gradient_scale,
                      const AdamwUpdate& update, bool rehearsal) {
  Adamw8bitTensors t = tensors;
  t.gradient = tensors.gradient.contiguous();  // the only allocation
  if (rehearsal) return;
  const float scale = gradient_scale.item<float>();
  with_type(t.weight, [&]<class W>() {
    with_type(t.gradient, [&]<class G>() { update_coded_tensor<W, G>(t, scale, update); });
  });
}

std::array<at::Tensor, 7> tensors_of(const Adamw8bitItem& item) {
  const Adamw8bitTensors& t = item.tensors;
  return {t.weight, t.gradient, t.exp_avg, t.exp_avg_sq, t.exp_avg_absmax, t.exp_avg_sq_absmax, t.master};
}

}  // namespace

void adamw_8bit_update(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                       AdamwProgress& progress) {
  if (items.empty()) return;
  const at::Device device = items.front().tensors.weight.device();
  if (target_of(device) != c10::kCPU) return adamw_8bit_update_gpu(items, gradient_scale, progress);
  for (; progress.next < items.size(); progress.next++) {
    const auto& [tensors, update] = items[progress.next];
    if (progress.next + 1 < items.size()) {
      for (const at::Tensor& tensor : tensors_of(items[progress.next + 1])) fetch_offloaded(tensor);
    }
    update_coded_cpu(tensors, gradient_scale, update, progress.rehearsal || device.is_meta());
    for (const at::Tensor& tensor : tensors_of(items[progress.next])) release_offloaded(tensor);
  }
}

}  // namespace trainer
