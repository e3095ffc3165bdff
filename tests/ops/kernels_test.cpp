// The GPU kernels, run on the CPU (support/emulated_gpu.h) and compared with the CPU's own operators.
#include "ops/kernels.h"

#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "ops/activation.h"
#include "ops/add_norm.h"
#include "ops/attention_weights.h"
#include "ops/dropout.h"
#include "ops/embedding_noise.h"
#include "ops/emulated_kernels.h"
#include "ops/fp8.h"
#include "ops/nf4.h"
#include "ops/rms_norm.h"
#include "ops/rotate_qk.h"
#include "support/compile_kernels.h"
#include "support/long_case.h"
#include "support/planned_bytes.h"
#include "support/reference.h"

namespace trainer {
namespace {

class OnAnEmulatedGpu : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  bool bf16() const { return type() == at::kBFloat16; }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type()); }
  // fp32: the last bits of a sum; bf16: a few elements on the other side of a rounding.
  double bound() const { return bf16() ? 3e-4 : 5e-7; }
  // Where a few elements are most of the tensor, one of them on the other side is more than bound(). So in
  // bf16 each may be off by one step, and one in 500.
  bool is_same(const at::Tensor& ours, const at::Tensor& cpu) const {
    if (!bf16()) return relative_difference(ours, cpu) <= bound();
    const at::Tensor off = (ours.to(at::kFloat) - cpu.to(at::kFloat)).abs();
    const int64_t others = off.ne(0).sum().item<int64_t>();
    return off.le(cpu.to(at::kFloat).abs() / 128).all().item<bool>() && others <= 1 + cpu.numel() / 500;
  }

  Random random_{17};
  EmulatedGpu gpu_;
};

TEST_P(OnAnEmulatedGpu, RmsNormIsTheCpus) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{3, 7}, {1, 33}, {2, 5, 64}, {40, 3, 129}, {1100, 16}, {5, 4104}}) {
    for (const bool plus_one : {false, true}) {
      const at::Tensor x = normal(shape), weight = normal({shape.back()}), g = normal(shape);
      const auto [y, rstd] = rms_norm(x, weight, 1e-5, plus_one);
      const auto [y2, rstd2] = as_on_a_gpu([&] { return rms_norm(x, weight, 1e-5, plus_one); });
      EXPECT_EQ(gpu_.was_wide(), shape.back() % 8 == 0);
      EXPECT_LE(relative_difference(y2, y), bound()) << shape;
      EXPECT_LE(relative_difference(rstd2, rstd), 5e-7) << shape;
      const auto [gx, gw] = rms_norm_backward(g, x, weight, rstd, true, true, plus_one);
      const auto [gx2, gw2] =
          as_on_a_gpu([&] { return rms_norm_backward(g, x, weight, rstd, true, true, plus_one); });
      EXPECT_LE(relative_difference(gx2, gx), bound()) << shape;
      EXPECT_LE(relative_difference(gw2, gw), bound()) << shape;
      EXPECT_EQ(gw2.scalar_type(), type());
      EXPECT_FALSE(std::get<1>(as_on_a_gpu([&] {
                     return rms_norm_backward(g, x, weight, rstd, true, false);
                   })).defined());
      EXPECT_FALSE(std::get<0>(as_on_a_gpu([&] {
                     return rms_norm_backward(g, x, weight, rstd, false, true);
                   })).defined());
    }
  }
}

TEST_P(OnAnEmulatedGpu, Nf4IsDequantisedToTheCpusBits) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{7, 7}, {5, 90}, {300, 64}}) {
    for (const bool nested : {false, true}) {
      const Nf4Tensor tensor = quantise_nf4("w", random_.normal(shape), nested);
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, tensor.numel()}, {3, 40}, {0, 48}}) {
        const at::Tensor ours = as_on_a_gpu([&] { return dequantise(tensor, first, count, type()); });
        EXPECT_TRUE(ours.equal(dequantise_nf4(tensor, first, count, type()))) << shape << nested << first;
        EXPECT_EQ(gpu_.was_wide(), first == 0 && count % (bf16() ? 8 : 4) == 0);
      }
    }
  }
}

TEST_P(OnAnEmulatedGpu, Fp8IsWidenedToTheCpusBits) {
  for (const Fp8Block& block : {kFp8Row, Fp8Block{0, 0}, Fp8Block{128, 128}, Fp8Block{5, 12}}) {
    for (const int64_t columns : {37, 272}) {
      Fp8Tensor tensor = quantise_fp8("w", random_.normal({140, columns}));
      const auto [down, across] = fp8_blocks(tensor.shape, block);
      tensor.block = block;
      tensor.scales = random_.normal({down * across}).abs() + 0.1;
      tensor.codes.view({140, columns}).select(0, 7).copy_(at::arange(columns) % 256);  // all codes
      for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 140}, {3, 20}, {127, 2}}) {
        const at::Tensor ours = as_on_a_gpu([&] { return widen_fp8(tensor, first, count, type()); });
        const at::Tensor cpu = widen_fp8_cpu(tensor, first, count, type());
        EXPECT_TRUE(ours.nan_to_num(9e4).equal(cpu.nan_to_num(9e4))) << block[0] << " " << columns << first;
        EXPECT_EQ(gpu_.was_wide(), columns == 272 && tensor.block_columns() % (bf16() ? 8 : 4) == 0);
      }
    }
  }
}

TEST_P(OnAnEmulatedGpu, GatedActivationsAreTheCpus) {
  for (const Activation activation :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    const auto kind = static_cast<int64_t>(activation);
    for (const int64_t cols : {33, 128}) {
      const at::Tensor gate = normal({37, cols}) * 3, up = normal({37, cols}), g = normal({37, cols});
      EXPECT_LE(relative_difference(as_on_a_gpu([&] { return gated_apply(gate, up, kind); }),
                                    gated_apply(gate, up, kind)),
                bound());
      EXPECT_EQ(gpu_.was_wide(), cols == 128);
      const auto [a, b] = gated_backward(g, gate, up, kind);
      const auto [c, d] = as_on_a_gpu([&] { return gated_backward(g.clone(), gate, up, kind); });
      EXPECT_LE(relative_difference(c, a), bound()) << kind;
      EXPECT_LE(relative_difference(d, b), bound()) << kind;
    }
  }
}

// Of gate and up as columns of one matrix, if nothing else holds it.
TEST_P(OnAnEmulatedGpu, GradientsOfAGateTakeThePlaceOfItsColumns) {
  for (const int64_t cols : {33, 128}) {
    const at::Tensor values = normal({2, 37, 2 * cols}), g = normal({2, 37, cols});
    const auto gradient_of = [&](bool held, bool in_place) {
      const at::Tensor leaf = values.clone().requires_grad_(true);
      at::Tensor all = leaf * 1;
      const void *memory = all.const_data_ptr(), *of_gradient = nullptr;
      std::vector<at::Tensor> parts = all.split(cols, -1);
      parts[0].register_hook([&](const at::Tensor& gradient) { of_gradient = gradient.const_data_ptr(); });
      const at::Tensor out = gated_activation(Activation::silu, parts[0], parts[1]),
                       kept = held ? all.detach() : at::Tensor();
      parts.clear();
      all.reset();
      out.backward(g);
      EXPECT_EQ(of_gradient == memory, in_place);
      EXPECT_TRUE(!held || kept.equal(values)) << "it is in use";
      return leaf.grad();
    };
    const at::Tensor on_cpu = gradient_of(false, false);
    for (const bool held : {false, true}) {
      const at::Tensor ours = as_on_a_gpu([&] { return gradient_of(held, !held); });
      EXPECT_LE(relative_difference(ours, on_cpu), bound()) << cols;
    }
  }
}

TEST_P(OnAnEmulatedGpu, GatedActivationsFarOutAreTheLimits) {
  const at::Tensor gate =
      at::tensor({-1e30f, -200.0f, -100.0f, -14.0f, -0.0f, 0.0f, 14.0f, 100.0f, 200.0f, 1e30f}).to(type());
  const at::Tensor one = at::ones_like(gate);
  for (const Activation activation :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    const auto kind = static_cast<int64_t>(activation);
    const auto near = [&](const at::Tensor& ours, const at::Tensor& cpu) {
      const at::Tensor allowed = cpu.abs() * (bf16() ? 0.01 : 1e-6) + gate.abs() * 1e-37 + 1e-30;
      return (ours - cpu).abs().le(allowed).all().item<bool>();
    };
    EXPECT_TRUE(near(as_on_a_gpu([&] { return gated_apply(gate, one, kind); }), gated_apply(gate, one, kind)))
        << kind;
    EXPECT_TRUE(near(std::get<0>(as_on_a_gpu([&] { return gated_backward(one, gate, one, kind); })),
                     std::get<0>(gated_backward(one, gate, one, kind))))
        << kind;
    EXPECT_TRUE(as_on_a_gpu([&] { return gated_apply(at::full_like(gate, NAN), one, kind); })
                    .isnan()
                    .all()
                    .item<bool>());
  }
}

TEST_P(OnAnEmulatedGpu, DropoutHasTheBitsOfTheCpus) {
  const uint64_t key = 0xfedcba9876543210ull;
  for (const int64_t cols : {65, 64}) {
    const at::Tensor x = normal({4, 17, cols});
    const at::Tensor keys = row_keys(at::tensor(std::vector<int64_t>{3, 1, 250, 99}), 17);
    const at::Tensor ours = as_on_a_gpu([&] { return dropout_apply(x, keys, key, 0.15); });
    EXPECT_EQ(gpu_.was_wide(), cols == 64);
    EXPECT_TRUE(ours.equal(dropout_apply(x, keys, key, 0.15)));
  }
}

TEST_P(OnAnEmulatedGpu, NoiseHasTheBitsOfTheCpus) {
  for (const int64_t cols : {65, 64}) {
    const at::Tensor x = normal({4, 17, cols}), sizes = at::arange(68).to(at::kFloat) / 10;
    const at::Tensor keys = row_keys(at::tensor(std::vector<int64_t>{3, 1, 250, 99}), 17);
    const at::Tensor ours = as_on_a_gpu([&] { return with_noise(x, keys, sizes, 0xfedcba9876543210ull); });
    EXPECT_EQ(gpu_.was_wide(), cols == 64);
    EXPECT_TRUE(ours.equal(with_noise(x, keys, sizes, 0xfedcba9876543210ull)));
  }
}

TEST_P(OnAnEmulatedGpu, AttentionWeightsAreTheCpus) {
  constexpr int64_t batch = 3, heads = 2;
  for (const auto& [rows, keys] :
       {std::pair<int64_t, int64_t>{6, 37}, {70, 5}, {5, 128}, {3, 600}, {2, 1030}}) {
    for (const double p : {0.0, 0.25}) {
      for (const bool causal : {false, true}) {
        if (causal && rows > keys) continue;
        const at::Tensor scores = normal({batch, heads, rows, keys}) * 3;
        const at::Tensor bias = normal({heads, rows + keys - 1});
        const at::Tensor lengths = at::tensor(std::vector<int64_t>{keys, keys / 2, 1});
        const at::Tensor row_keys = at::arange(batch * rows).view({batch, rows}) * 977;
        const WeightsOptions o{0.7, causal ? keys - rows + 1 : keys, 99, p};
        const at::Tensor cpu = attention_weights(scores, bias, lengths, row_keys, o);
        const at::Tensor ours =
            as_on_a_gpu([&] { return attention_weights(scores, bias, lengths, row_keys, o); });
        EXPECT_TRUE(is_same(ours, cpu));
        EXPECT_TRUE(ours.eq(0).equal(cpu.eq(0)));
        const at::Tensor plain = attention_weights(scores, {}, {}, {}, {0.7, keys, 0, 0.0});
        EXPECT_TRUE(is_same(as_on_a_gpu([&] {
                              return attention_weights(scores, {}, {}, {}, {0.7, keys, 0, 0.0});
                            }),
                            plain));
        const at::Tensor g = normal({batch, heads, rows, keys});
        const auto [a, b] = attention_weights_backward(g, plain, row_keys, o, true);
        const auto [c, d] =
            as_on_a_gpu([&] { return attention_weights_backward(g, plain, row_keys, o, true); });
        EXPECT_LE(relative_difference(c, a), bf16() ? 2e-3 : 1e-6);
        EXPECT_LE(relative_difference(d, b), 1e-6);
        EXPECT_FALSE(std::get<1>(as_on_a_gpu([&] {
                       return attention_weights_backward(g, plain, row_keys, o, false);
                     })).defined());
      }
    }
  }
}

// More keys than a block's threads can hold.
TEST_P(OnAnEmulatedGpu, AttentionWeightsThatNoKernelTakesAreTheCpus) {
  constexpr int64_t rows = 2, keys = 16'400;
  const at::Tensor scores = normal({1, 2, rows, keys}), bias = normal({2, rows + keys - 1}),
                   lengths = at::tensor({keys - 7}), row_keys = at::arange(rows).view({1, rows}),
                   g = normal({1, 2, rows, keys});
  const WeightsOptions o{0.7, keys - 1, 99, 0.25};
  const at::Tensor cpu = attention_weights(scores, bias, lengths, row_keys, o);
  const at::Tensor ours = as_on_a_gpu([&] { return attention_weights(scores, bias, lengths, row_keys, o); });
  EXPECT_TRUE(is_same(ours, cpu));
  EXPECT_TRUE(ours.eq(0).equal(cpu.eq(0)));
  const auto [both, before] =
      as_on_a_gpu([&] { return attention_weights_both(scores, bias, lengths, row_keys, o); });
  EXPECT_TRUE(both.equal(ours));
  const auto [a, b] = attention_weights_backward(g, before, row_keys, o, true);
  const auto [c, d] = as_on_a_gpu([&] { return attention_weights_backward(g, before, row_keys, o, true); });
  EXPECT_LE(relative_difference(c, a), bf16() ? 2e-3 : 1e-6);
  EXPECT_LE(relative_difference(d, b), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Types, OnAnEmulatedGpu, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(EmulatedGpu, SeesAMissingBarrier) {
  emulated::Block block(64);
  float shared = 0.0f;
  std::vector<float> seen(64);
  const auto run = [&](bool with_barrier, bool reversed) {
    shared = 0.0f;
    block.run(
        [&] {
          if (threadIdx.x == 40) shared = 7.0f;
          if (with_barrier) __syncthreads();
          seen[threadIdx.x] = shared;
        },
        reversed);
    return std::count(seen.begin(), seen.end(), 7.0f);
  };
  EXPECT_EQ(run(true, false), 64);
  EXPECT_EQ(run(true, true), 64);
  EXPECT_LT(run(false, false), 64);
  EXPECT_LT(run(false, true), 64);
  EXPECT_THROW(block.run(
                   [&] {
                     if (threadIdx.x < 32) __syncthreads();
                   },
                   false),
               std::logic_error);
}

TEST(Kernels, AreCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const EmulatedGpu gpu;
  std::set<std::string> names;
  for (const auto& [name, kernels] : gpu.files()) names.insert(name.substr(0, name.find(".cu ")));
  for (const std::string& name : names) test::expect_compiles(kernel_file(name), gpu);
}

TEST(Kernels, AreStartedForPartsOfATensorWhoseThreadsTheyCannotCount) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  const auto add = [&](int64_t first, int64_t rows) { parts.emplace_back(first, rows); };
  for_rows_that_fit(7, int64_t{1} << 29, add);
  EXPECT_EQ(parts, (std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 3}, {6, 1}}));
  parts.clear();
  for_rows_that_fit(1 << 20, 512, add);
  EXPECT_EQ(parts, (std::vector<std::pair<int64_t, int64_t>>{{0, 1 << 20}}));
  parts.clear();
  for_rows_that_fit(0, 512, add);
  EXPECT_TRUE(parts.empty());
}

TEST(Kernels, AMistakeInOneIsReportedWithItsLine) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const KernelFile wrong{"wrong.cu", "#include \"device/prelude.cuh\"\nKERNEL f() { nothing(); }\n"};
  const CompiledKernels compiled = compile_kernels(wrong, "", {8, 0});
  EXPECT_EQ(compiled.image, "");
  EXPECT_NE(compiled.problem.find("wrong.cu(2): error: identifier \"nothing\""), std::string::npos)
      << compiled.problem;
}

TEST(Kernels, AGpuNewerThanTheCompilerGetsCodeThatTheDriverTranslates) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const CompiledKernels compiled = compile_kernels(kernel_file("dropout"), "Element=float kWidth=1", {99, 0});
  EXPECT_NE(compiled.image.find(".entry drop("), std::string::npos) << compiled.problem;
  EXPECT_NE(compile_kernels(kernel_file("dropout"), "Element=float kWidth=1", {3, 5}).problem, "");
}

TEST(Kernels, APlanCountsWhatIsAllocatedForThem) {
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor x = at::empty({64, 512}, options), weight = at::empty({512}, options);
  const at::Tensor rstd = at::empty({64}, options.dtype(at::kFloat));
  const at::Tensor keys = at::empty({64}, options.dtype(at::kLong));
  const at::Tensor scores = at::empty({2, 4, 8, 512}, options), row_keys = keys.view({2, 32}).slice(1, 0, 8);
  constexpr int64_t bytes = 64 * 512 * 2;
  using Bytes = std::vector<int64_t>;
  EXPECT_EQ(planned([&] { rms_norm(x, weight, 1e-5); }), (Bytes{bytes, 64 * 4}));
  EXPECT_EQ(planned([&] { rms_norm_backward(x, x, weight, rstd, true, false); }), Bytes{bytes});
  // four partial sums of 16 rows each, their sum, its rounded value
  EXPECT_EQ(planned([&] { rms_norm_backward(x, x, weight, rstd, false, true); }),
            (Bytes{4 * 512 * 4, 512 * 4, 512 * 2}));
  const PartDropout part{keys, 1, 0.1};
  EXPECT_EQ(planned([&] { add_norm(x, x, weight, part, 1e-5, false); }), (Bytes{bytes, bytes, 64 * 4}));
  EXPECT_EQ(planned([&] { add_norm_backward(x, x, x, weight, rstd, part, false); }), (Bytes{bytes, bytes}));
  EXPECT_EQ(planned([&] { add_norm_backward(x, x, x, weight, rstd, {}, false); }), Bytes{bytes});
  const at::Tensor q = x.view({1, 64, 4, 128}), k = at::empty({1, 64, 2, 128}, options);
  const at::Tensor table = at::empty({64, 64}, options), one = at::empty({128}, options);
  const QkNorms norms{one, one, 1e-5, false};
  EXPECT_EQ(planned([&] { rotate_qk({q, k}, {}, table, table); }), (Bytes{bytes, bytes / 2}));
  EXPECT_EQ(planned([&] {
              rotate_qk({q, k}, norms, table, table);
            }),
            (Bytes{bytes, bytes / 2, 64 * 4 * 4, 64 * 2 * 4}));
  EXPECT_EQ(planned([&] { gated_backward(x, x, x, 0); }), (Bytes{bytes, bytes}));
  EXPECT_EQ(planned([&] { dropout_apply(x, keys, 1, 0.1); }), Bytes{bytes});
  const WeightsOptions dropped{1.0, 512, 1, 0.1};
  EXPECT_EQ(planned([&] { attention_weights_backward(scores, scores, row_keys, dropped, true); }),
            (Bytes{2 * 8 * 8, bytes, 2 * 4 * 8 * 4, 2 * 4 * (8 + 512 - 1) * 4}));
}

}  // namespace
}  // namespace trainer
