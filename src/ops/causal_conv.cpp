#include "ops/causal_conv.h"

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"
#include "ops/recurrent_kernels.h"
#include "ops/run_table.h"
#include "ops/token_runs.h"

namespace trainer {
namespace {

constexpr int64_t kMostTaps = 4;  // as in causal_conv.cu

// The struct of causal_conv.cu.
struct ConvShape {
  int64_t x_row, g_row;
  int channels, taps, tile, silu, first_tile;
};

// Channels next to each other; rows may be part of wider ones.
at::Tensor rows_next_to_each_other(const at::Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

// What both directions take, and the tensors that it points to.
struct ConvCall {
  ConvCall(const at::Tensor& x_, const at::Tensor& weight_, int64_t tile, bool silu)
      : x(rows_next_to_each_other(x_)), weight(weight_.contiguous()) {
    check_fits(x.size(0), "causal_conv");
    shape = {
        x.stride(0), 0, static_cast<int>(x.size(1)), static_cast<int>(weight.size(2)), static_cast<int>(tile),
        silu,        0};
  }

  // body(kernels, grid, table, shape) for the runs.
  template <class Body>
  void start(const TokenRuns& runs, int64_t width, const Body& body) {
    const Kernels& kernels = kernels_for(x, "causal_conv", width);
    const int64_t threads = std::min<int64_t>(128, (x.size(1) / width + 31) / 32 * 32);
    const int64_t across = (x.size(1) / width + threads - 1) / threads;
    for_run_tables(runs, shape.tile, [&](const RunTable& table, int64_t, int64_t first_tile) {
      shape.first_tile = static_cast<int>(first_tile);
      body(kernels, KernelGrid{table.all_tiles(), across, threads}, table, shape);
    });
  }

  at::Tensor x, weight;
  ConvShape shape{};
};

at::Tensor causal_conv_gpu(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs, bool silu) {
  if (!takes_causal_conv(x, weight.size(2))) return causal_conv_composed(x, weight, runs, silu);
  ConvCall call(x, weight, /*tile=*/32, silu);
  const at::Tensor out = zeros_in_padding(x.size(0), x.size(1), x.options(), runs);
  const int64_t width = width_for(x.size(1), {call.x, out}, {call.x.stride(0)});
  call.start(
      runs, width,
      [&](const Kernels& kernels, const KernelGrid& grid, const RunTable& table, const ConvShape& shape) {
        kernels.start("convolve", grid, elements(call.x, x), elements(call.weight, x), out.mutable_data_ptr(),
                      table, shape);
      });
  return out;
}

std::tuple<at::Tensor, at::Tensor> causal_conv_backward_gpu(const at::Tensor& grad, const at::Tensor& x,
                                                            const at::Tensor& weight, const TokenRuns& runs,
                                                            bool silu, bool needs_weight) {
  const int64_t tile = needs_weight ? 64 : 32, channels = x.size(1);  // longer ones give fewer parts to sum
  ConvCall call(x, weight, tile, silu);
  const at::Tensor g = rows_next_to_each_other(grad);
  call.shape.g_row = g.stride(0);
  const at::Tensor gx = zeros_in_padding(x.size(0), channels, x.options(), runs);
  const int64_t width = width_for(channels, {call.x, g, gx}, {call.x.stride(0), g.stride(0)});
  const int64_t tiles = all_tiles(runs, tile);
  at::Tensor parts, g_weight;
  if (needs_weight) {
    parts = at::empty({tiles, kMostTaps, channels}, x.options().dtype(at::kFloat));
    g_weight = at::empty_like(call.weight);
  }
  void* const to = needs_weight ? parts.mutable_data_ptr() : nullptr;
  call.start(
      runs, width,
      [&](const Kernels& kernels, const KernelGrid& grid, const RunTable& table, const ConvShape& shape) {
        kernels.start("convolve_backward", grid, elements(g, x), elements(call.x, x),
                      elements(call.weight, x), gx.mutable_data_ptr(), to, table, shape);
      });
  if (!needs_weight) return {gx, at::Tensor()};
  const int taps = call.shape.taps;
  kernels_for(x, "causal_conv", width)
      .start("sum_weight_parts", KernelGrid{(channels + 127) / 128, taps, 128}, parts.const_data_ptr(),
             g_weight.mutable_data_ptr(), static_cast<int>(tiles), static_cast<int>(channels), taps);
  return {gx, g_weight};
}

constexpr Op kCausalConv{"trainer::causal_conv", causal_conv_cpu, causal_conv_gpu};
constexpr Op kCausalConvBackward{"trainer::causal_conv_backward", causal_conv_backward_cpu,
                                 causal_conv_backward_gpu};

}  // namespace

bool takes_causal_conv(const at::Tensor& x, int64_t width) {
  const bool known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return known && width <= kMostTaps && uses_recurrent_kernels(x.device());
}

at::Tensor causal_conv(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs, bool silu) {
  return kCausalConv(x, weight, runs, silu);
}

std::tuple<at::Tensor, at::Tensor> causal_conv_backward(const at::Tensor& grad, const at::Tensor& x,
                                                        const at::Tensor& weight, const TokenRuns& runs,
                                                        bool silu, bool needs_weight) {
  return kCausalConvBackward(grad, x, weight, runs, silu, needs_weight);
}

}  // namespace trainer
