// This layer's operators on a GPU, compared with those on the CPU; skipped without a GPU.
#include "support/gpu.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainer/device/device.h"

#include "nn/attention.h"
#include "nn/ordered_cudnn_attention.h"
#include "ops/activation.h"
#include "ops/add_norm.h"
#include "ops/attention_weights.h"
#include "ops/cached_attention_cases.h"
#include "ops/coded_product.h"
#include "ops/dropout.h"
#include "ops/fp8.h"
#include "ops/kernels.h"
#include "ops/linear_cross_entropy.h"
#include "ops/rms_norm.h"
#include "ops/rotate_qk.h"
#include "ops/t5_attention_cases.h"
#include "support/reference.h"

namespace trainer {
namespace {

using test::on_gpu;

class OnAGpu : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t>> {
 protected:
  void SetUp() override {
    const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
    if (!why.empty()) GTEST_SKIP() << why;
  }
  bool bf16() const { return std::get<0>(GetParam()) == at::kBFloat16; }
  int64_t cols() const { return std::get<1>(GetParam()); }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, std::get<0>(GetParam())); }
  void near(const at::Tensor& gpu, const at::Tensor& cpu) const {
    EXPECT_TRUE(gpu.is_cuda());
    EXPECT_EQ(gpu.scalar_type(), cpu.scalar_type());
    EXPECT_LE(relative_difference(gpu.cpu(), cpu), bf16() ? 2e-3 : 1e-6);
  }

  Random random_{23};
};

TEST_P(OnAGpu, RmsNormIsTheCpus) {
  const at::Tensor x = normal({300, cols()}), weight = normal({cols()}), g = normal({300, cols()});
  const auto [y, rstd] = rms_norm(x, weight, 1e-5);
  const auto [y2, rstd2] = rms_norm(on_gpu(x), on_gpu(weight), 1e-5);
  near(y2, y);
  near(rstd2, rstd);
  const auto [gx, gw] = rms_norm_backward(g, x, weight, rstd, true, true);
  const auto [gx2, gw2] = rms_norm_backward(on_gpu(g), on_gpu(x), on_gpu(weight), rstd2, true, true);
  near(gx2, gx);
  near(gw2, gw);
  EXPECT_TRUE(
      gw2.equal(std::get<1>(rms_norm_backward(on_gpu(g), on_gpu(x), on_gpu(weight), rstd2, true, true))));
}

// By whole pieces of codes and, for the odd sizes, one by one; a row alone has its bits.
TEST_P(OnAGpu, WeightsAreMultipliedAsTheyAreStored) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = normal({19, cols()}), values = random_.normal({300, cols()});
  Nf4Tensor nf4 = quantise_nf4("w", values, cols() % 2 == 0), nf4_there = nf4;
  for (at::Tensor* part : {&nf4_there.codes, &nf4_there.scales, &nf4_there.nested_scales})
    *part = on_gpu(*part);
  Fp8Tensor fp8 = quantise_fp8("w", values), fp8_there = fp8;
  for (at::Tensor* part : {&fp8_there.codes, &fp8_there.scales}) *part = on_gpu(*part);
  const std::vector<CodedWeight> there{{.nf4 = &nf4_there}, {.fp8 = &fp8_there}};
  const std::vector<at::Tensor> cpu = coded_products(x, {{.nf4 = &nf4}, {.fp8 = &fp8}}),
                                gpu = coded_products(on_gpu(x), there),
                                one = coded_products(on_gpu(x.narrow(0, 13, 1)), there);
  for (size_t i = 0; i < cpu.size(); i++) {
    near(gpu[i], cpu[i]);
    EXPECT_TRUE(one[i].equal(gpu[i].narrow(0, 13, 1)));
  }
}

TEST_P(OnAGpu, Fp8IsWidenedToTheCpusBits) {
  const Fp8Tensor cpu = quantise_fp8("w", normal({300, cols()}));
  Fp8Tensor gpu = cpu;
  gpu.codes = on_gpu(cpu.codes);
  gpu.scales = on_gpu(cpu.scales);
  const at::ScalarType type = std::get<0>(GetParam());
  EXPECT_TRUE(widen_fp8(gpu, 3, 290, type).cpu().equal(widen_fp8(cpu, 3, 290, type)));
}

TEST_P(OnAGpu, AttentionToCachedKeysIsTheCpus) {
  const Cached c =
      scattered(random_, 8, 2, std::min<int64_t>(cols(), 512), std::get<0>(GetParam()), {1, 130, 40, 300});
  for (const CachedScores& how :
       {CachedScores{.scale = 0.1}, {.scale = 0.1, .soft_cap = 5.0, .window = 50}}) {
    const CachedKeys keys{on_gpu(c.k), on_gpu(c.v), on_gpu(c.table)};
    near(cached_attention(on_gpu(c.q), {on_gpu(c.added.k), on_gpu(c.added.v)}, keys, how),
         cached_attention(c.q, c.added, c.keys(), how));
    EXPECT_TRUE(keys.k.cpu().equal(c.k));
    EXPECT_TRUE(keys.v.cpu().equal(c.v));
  }
}

TEST_P(OnAGpu, SumsWithTheirNormsAreTheCpus) {
  const at::Tensor x = normal({300, cols()}), y = normal({300, cols()}), weight = normal({cols()}),
                   g = normal({300, cols()}), keys = at::arange(300);
  const PartDropout dropped{keys, 77, 0.1}, dropped_on_gpu{on_gpu(keys), 77, 0.1};
  const auto [h, n, rstd] = add_norm(x, y, weight, dropped, 1e-5, false);
  const auto [h2, n2, rstd2] = add_norm(on_gpu(x), on_gpu(y), on_gpu(weight), dropped_on_gpu, 1e-5, false);
  near(h2, h);
  near(n2, n);
  const auto [gx, gy] = add_norm_backward(g, y, h, weight, rstd, dropped, false);
  const auto [gx2, gy2] =
      add_norm_backward(on_gpu(g), on_gpu(y), h2, on_gpu(weight), rstd2, dropped_on_gpu, false);
  near(gx2, gx);
  near(gy2, gy);
}

TEST_P(OnAGpu, GatedActivationsAreTheCpus) {
  const at::Tensor gate = normal({130, cols()}), up = normal({130, cols()}), g = normal({130, cols()});
  for (const Activation activation :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    const auto kind = static_cast<int64_t>(activation);
    near(gated_apply(on_gpu(gate), on_gpu(up), kind), gated_apply(gate, up, kind));
    const auto [a, b] = gated_backward(g, gate, up, kind);
    const auto [c, d] = gated_backward(on_gpu(g), on_gpu(gate), on_gpu(up), kind);
    near(c, a);
    near(d, b);
  }
}

TEST_P(OnAGpu, RotaryEmbeddingWithNormsIsTheCpus) {
  const QkPair in{normal({3, 50, 4, 2 * cols()}), normal({3, 50, 2, 2 * cols()})};
  const at::Tensor cos = normal({50, cols()}), sin = normal({50, cols()}), q_weight = normal({2 * cols()}),
                   k_weight = normal({2 * cols()});
  const auto pair_on_gpu = [](const QkPair& pair) { return QkPair{on_gpu(pair.q), on_gpu(pair.k)}; };
  for (const bool normed : {false, true}) {
    QkNorms norms{{}, {}, 1e-5, false}, norms_on_gpu = norms;
    if (normed) {
      norms = {q_weight, k_weight, 1e-5, false};
      norms_on_gpu = {on_gpu(q_weight), on_gpu(k_weight), 1e-5, false};
    }
    const RotatedQk cpu = rotate_qk(in, norms, cos, sin);
    const RotatedQk gpu = rotate_qk(pair_on_gpu(in), norms_on_gpu, on_gpu(cos), on_gpu(sin));
    near(gpu.out.q, cpu.out.q);
    near(gpu.out.k, cpu.out.k);
    const QkGradients expected = rotate_qk_backward(cpu.out, in, cpu.rstd, norms, cos, sin, normed);
    const QkGradients ours = rotate_qk_backward(pair_on_gpu(cpu.out), pair_on_gpu(in), gpu.rstd, norms_on_gpu,
                                                on_gpu(cos), on_gpu(sin), normed);
    near(ours.in.q, expected.in.q);
    near(ours.in.k, expected.in.k);
    if (normed) {
      near(ours.weights.q, expected.weights.q);
      near(ours.weights.k, expected.weights.k);
    }
  }
}

TEST_P(OnAGpu, DropoutHasTheBitsOfTheCpus) {
  const at::Tensor x = normal({4, 170, cols()});
  const at::Tensor keys = row_keys(at::tensor(std::vector<int64_t>{3, 1, 250, 99}), 170);
  EXPECT_TRUE(dropout_apply(on_gpu(x), on_gpu(keys), 77, 0.1).cpu().equal(dropout_apply(x, keys, 77, 0.1)));
}

TEST_P(OnAGpu, AttentionWeightsAreTheCpus) {
  const int64_t rows = 40, keys = cols();
  const at::Tensor scores = normal({3, 2, rows, keys}), bias = normal({2, rows + keys - 1});
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{keys, keys / 2, 1});
  const at::Tensor row_keys = at::arange(3 * rows).view({3, rows}), g = normal({3, 2, rows, keys});
  const WeightsOptions options{0.7, keys, 99, 0.1};
  const at::Tensor cpu = attention_weights(scores, bias, lengths, row_keys, options);
  near(attention_weights(on_gpu(scores), on_gpu(bias), on_gpu(lengths), on_gpu(row_keys), options), cpu);
  const auto [a, b] = attention_weights_backward(g, cpu, row_keys, options, true);
  const auto [c, d] = attention_weights_backward(on_gpu(g), on_gpu(cpu), on_gpu(row_keys), options, true);
  near(c, a);
  near(d, b);
}

TEST(AttentionOnAGpu, OfT5IsThatOfFp64AndRepeats) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  for (const T5AttentionCase& c : t5_attention_cases()) {
    const T5AttentionGiven given(c);
    T5AttentionInputs in = given.in;
    for (at::Tensor* x : {&in.q, &in.k, &in.v, &in.bias_weight, &in.bias_buckets, &in.query_starts,
                          &in.key_starts, &in.key_lengths, &in.row_keys})
      *x = on_gpu(*x);
    if (!takes_t5_attention(in.q.device(), at::kBFloat16, c.head_dim)) GTEST_SKIP() << "a GPU before Ampere";
    const Tensors exact = value_and_gradients([&](const Tensors& t) { return definition(given, t); },
                                              given.leaves(), given.g, at::kDouble);
    const auto ours = [&] {
      const auto [out, lse] = t5_attention(in);
      const T5AttentionGradients to = t5_attention_backward(in, on_gpu(given.g), out, lse, c.biased);
      return Tensors{out, to.q, to.k, to.v, to.bias};
    };
    const Tensors first = ours(), second = ours();
    for (size_t i = 0; i < exact.size(); i++) {
      EXPECT_LE(relative_difference(first[i].cpu(), exact[i]), i < 4 ? kBoundOfT5Attention : kBoundOfT5Bias)
          << c.name << i;
      EXPECT_TRUE(first[i].equal(second[i])) << c.name << i;
    }
  }
}

// Where the order of sums is free, cuDNN may attend, and in a fixed order it may do so forwards, at the
// longer length; otherwise FlashAttention does.
TEST(AttentionOnAGpu, InEitherOrderIsThatOfFp64) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  Random random(29);
  for (const int64_t length : {130, 1024}) {
    const auto normal = [&](int64_t heads) {
      return random.normal({2, length, heads, 64}, at::kBFloat16).transpose(1, 2);
    };
    const Tensors in{normal(8), normal(2), normal(2)};
    const at::Tensor weight = normal(8);
    bool free_order = false;
    const auto attend = [&](const Tensors& t) {
      return attention({t[0], t[1], t[2], 0.125, true, {}, free_order});
    };
    Tensors exact_in, gpu_in;
    for (const at::Tensor& t : in) {
      exact_in.push_back(t.to(at::kDouble));
      gpu_in.push_back(on_gpu(t));
    }
    if (compute_major(gpu_in[0].device()) == 9) {
      EXPECT_EQ(uses_ordered_cudnn({gpu_in[0], gpu_in[1], gpu_in[2]}, 0.125), length == 1024)
          << "a warning says why cuDNN is not used";
    }
    const Tensors exact = value_and_gradients(attend, exact_in, weight.to(at::kDouble), at::kDouble);
    for (const bool is_free : {false, true}) {
      free_order = is_free;
      for (int i = 0; i < 100; i++) attend(gpu_in);  // cuDNN attends in free order where a shape comes often
      const Deterministic sums(c10::kCUDA, !is_free);
      const auto compute = [&] { return value_and_gradients(attend, gpu_in, on_gpu(weight), at::kBFloat16); };
      const Tensors ours = compute(), again = compute();
      for (size_t i = 0; i < ours.size(); i++) {
        EXPECT_LE(relative_difference(ours[i].cpu(), exact[i]), 4e-3) << i << is_free << length;
        EXPECT_TRUE(is_free || ours[i].equal(again[i])) << i << length;
      }
    }
  }
}

// While it lives, fp32 products are in fp32.
struct WithoutTf32 {
  WithoutTf32() { use_tf32(false); }
  ~WithoutTf32() { use_tf32(true); }
};

// In bf16 it is no further from the values in fp32 than the CPU's.
TEST_P(OnAGpu, TheLossIsTheCpus) {
  const WithoutTf32 without;
  const at::Tensor hidden = normal({1100, 32}), weight = normal({cols(), 32}),
                   labels = (at::arange(1100) * 977).remainder(cols());
  for (const double soft_cap : {0.0, 5.0}) {
    const LossOptions options{0.1, true, soft_cap};
    const auto parts = [&] {
      return loss_parts_gpu(on_gpu(hidden), on_gpu(weight), on_gpu(labels), options, {true, true});
    };
    const LossParts exact = loss_parts_cpu(hidden.to(at::kFloat), weight.to(at::kFloat), labels, options,
                                           {true, true}),
                    cpu = loss_parts_cpu(hidden, weight, labels, options, {true, true}), gpu = parts(),
                    again = parts();
    const auto near = [&](at::Tensor LossParts::*part, double bound) {
      const double of_cpu = relative_difference(cpu.*part, exact.*part);
      EXPECT_LE(relative_difference((gpu.*part).cpu(), exact.*part), std::max(bound, 1.1 * of_cpu));
      EXPECT_TRUE((gpu.*part).equal(again.*part));
    };
    near(&LossParts::loss, 1e-6);
    near(&LossParts::g_hidden, 2e-6);
    near(&LossParts::g_weight, 2e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OnAGpu,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(64, 67, 4096)));

}  // namespace
}  // namespace trainer
