// cuDNN's ordered backward pass: how a batch is divided, with LibTorch's CPU operator in cuDNN's place; what
// a plan of memory counts; cuDNN's own plans for an H100 that is not here; and on a Hopper, what it computes.
#include "nn/cudnn_ordered_backward.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/log.h"
#include "trainer/device/device.h"

#include "device/target_device.h"
#include "memory/gpu_graph.h"
#include "memory/meta_memory.h"
#include "nn/cudnn_backward_plan.h"
#include "support/gpu.h"
#include "support/reference.h"

namespace trainer {
namespace {

constexpr double kScale = 0.3;

Attended forward_on_cpu(const Qkv& in) {
  const auto [out, lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(in.q, in.k, in.v, 0.0, true, {}, kScale);
  return {out, lse};
}

Qkv backward_on_cpu(const at::Tensor& grad, const Qkv& in, const Attended& of) {
  const auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, in.q, in.k, in.v, of.out, of.lse, 0.0, true, {}, kScale);
  return {q, k, v};
}

// As BackwardOfOne promises it to cuDNN.
void expect_by_position(const at::Tensor& x, bool dense) {
  EXPECT_EQ(x.size(0), 1);
  EXPECT_EQ(x.stride(3), 1);
  EXPECT_EQ(x.stride(1), x.size(3));
  EXPECT_EQ(x.stride(2) * x.element_size() % 16, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16, 0U);
  if (dense) {
    EXPECT_EQ(x.stride(2), x.size(1) * x.size(3));
  }
}

Qkv by_sample(const at::Tensor& grad, const Qkv& in, const Attended& of) {
  return backward_by_sample(grad, in, of,
                            [](const at::Tensor& g, const Qkv& x, const Attended& y, const Qkv& to) {
                              for (const at::Tensor& t : {x.q, x.k, x.v}) expect_by_position(t, false);
                              for (const at::Tensor& t : {g, y.out, to.q, to.k, to.v}) {
                                expect_by_position(t, true);
                              }
                              EXPECT_TRUE(y.lse.is_contiguous());
                              const Qkv result = backward_on_cpu(g, x, y);
                              to.q.copy_(result.q);
                              to.k.copy_(result.k);
                              to.v.copy_(result.v);
                            });
}

// Three samples of 24 positions, by position.
at::Tensor heads_of_three(Random& random, int64_t heads) {
  return random.normal({3, 24, heads, 16}, at::kFloat).transpose(1, 2);
}

void expect_same(const Qkv& a, const Qkv& b) {
  EXPECT_TRUE(a.q.equal(b.q));
  EXPECT_TRUE(a.k.equal(b.k));
  EXPECT_TRUE(a.v.equal(b.v));
}

TEST(CudnnOrderedBackward, ABatchIsThatOfItsSamples) {
  Random random(1);
  const at::Tensor matrix = heads_of_three(random, 8);  // as one product gives q, k and v
  const Qkv in{matrix.narrow(1, 0, 4), matrix.narrow(1, 4, 2), matrix.narrow(1, 6, 2)};
  const Attended of = forward_on_cpu(in);
  const at::Tensor grad = heads_of_three(random, 4);
  const Qkv ours = by_sample(grad, in, of), whole = backward_on_cpu(grad, in, of);
  for (const auto& [a, b] : {std::pair(ours.q, whole.q), {ours.k, whole.k}, {ours.v, whole.v}})
    EXPECT_LE(relative_difference(a, b), 1e-6);
}

// A batch that did not fit into memory is divided, and that must not change bits.
TEST(CudnnOrderedBackward, ASampleHasTheSameBitsAloneAndInABatch) {
  Random random(2);
  const Qkv in{heads_of_three(random, 4), heads_of_three(random, 2), heads_of_three(random, 2)};
  const Attended of = forward_on_cpu(in);
  const at::Tensor grad = heads_of_three(random, 4);
  const Qkv all = by_sample(grad, in, of);
  const auto last = [](const at::Tensor& x) { return x.narrow(0, 2, 1); };
  const Qkv alone = by_sample(last(grad), {last(in.q), last(in.k), last(in.v)}, {last(of.out), last(of.lse)});
  expect_same(alone, {last(all.q), last(all.k), last(all.v)});
}

TEST(CudnnOrderedBackward, TakesHeadsInAnyLayout) {
  Random random(3);
  const Qkv in{heads_of_three(random, 4), heads_of_three(random, 2), heads_of_three(random, 2)};
  const Attended of = forward_on_cpu(in);
  const at::Tensor grad = heads_of_three(random, 4);
  const Qkv expected = by_sample(grad, in, of);
  const auto by_head = [](const at::Tensor& x) { return x.contiguous(); };
  const auto misaligned = [](const at::Tensor& x) {
    return at::empty({x.numel() + 1}, x.options()).narrow(0, 1, x.numel()).view(x.sizes()).copy_(x);
  };
  const auto in_wide_rows = [](const at::Tensor& x) {
    at::Tensor wide = at::empty({x.size(0), x.size(2), x.size(1), 20}, x.options()).narrow(3, 0, x.size(3));
    return wide.transpose(1, 2).copy_(x);
  };
  const auto same_with = [&](const auto& layout) {
    expect_same(by_sample(layout(grad), {layout(in.q), layout(in.k), layout(in.v)},
                          {layout(of.out), of.lse.transpose(1, 2).contiguous().transpose(1, 2)}),
                expected);
  };
  same_with(by_head);
  same_with(misaligned);
  same_with(in_wide_rows);
  const at::Tensor one = at::ones({1, 1, 1, 16}).expand(grad.sizes());  // as the sum of a result gives
  expect_same(by_sample(one, in, of), by_sample(one.contiguous(), in, of));
}

TEST(CudnnOrderedBackward, TheSizesOfASampleAloneDecide) {
  EXPECT_TRUE(fits_cudnn_backward(32, 4096));
  EXPECT_FALSE(fits_cudnn_backward(33, 4096));
  EXPECT_FALSE(fits_cudnn_backward(32, 8192));
  EXPECT_TRUE(fits_cudnn_backward(8, 8192));
  const auto suits = [](int64_t samples, int64_t length, int64_t keys) {
    const auto heads = [&](int64_t count, int64_t positions) {
      return at::empty({samples, count, positions, 128}, at::TensorOptions(at::kBFloat16).device(at::kMeta));
    };
    return sizes_suit_cudnn_backward({heads(32, length), heads(8, keys), heads(8, keys)});
  };
  for (const int64_t samples : {1, 64}) {
    EXPECT_TRUE(suits(samples, 2048, 2048));
    EXPECT_FALSE(suits(samples, 8192, 8192));
    EXPECT_FALSE(suits(samples, 2047, 2047)) << "a length of many";
    EXPECT_FALSE(suits(samples, 1024, 2048));
  }
}

// The bytes that a backward pass needs at once, on meta.
template <class Backward>
int64_t peak_of(const Backward& backward) {
  const PlanningFor gpu(c10::kCUDA);
  const MetaRecorder recorder(1);
  backward();
  int64_t now = 0, peak = 0;
  for (const MetaEvent& event : recorder.events()) {
    now += event.bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

TEST(CudnnOrderedBackward, APlanCountsTheWorkspaceOfOneSample) {
  for (const int64_t samples : {1, 16}) {
    const auto heads = [&](int64_t count) {
      return at::empty({samples, 1024, count, 64}, at::TensorOptions(at::kBFloat16).device(at::kMeta))
          .transpose(1, 2);
    };
    const Qkv in{heads(16), heads(4), heads(4)};
    const at::Tensor grad = heads(16), lse = at::empty({samples, 16, 1024}, in.q.options().dtype(at::kFloat));
    const auto peak = [&](const AttentionKernels& by) {
      return peak_of([&] { by.backward(grad, in, {grad, lse}, kScale); });
    };
    const int64_t gradients = samples * 1024 * (16 + 4 + 4) * 64 * 2,
                  ours = gradients + cudnn_backward_bytes(16, 4, 1024, 64);
    EXPECT_EQ(peak(cudnn_alone()), ours);
    // Rows of another length take FlashAttention's backward pass, which needs more where samples are many.
    EXPECT_EQ(peak(planned_cudnn_alone()), std::max(ours, peak(flash_alone())));
    EXPECT_EQ(peak(planned_cudnn_alone()) > ours, samples == 16);
  }
}

// Called here whatever TRAINER_CUDNN_ATTENTION says.
TEST(CudnnOrderedBackward, OnAGpuItIsFlashAttentions) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  const c10::Device gpu(c10::kCUDA, 0);
  if (compute_major(gpu) != 9 || !has_backward_plans()) return;  // on others it is not used
  const auto bf16 = at::TensorOptions(at::kBFloat16).device(gpu);
  for (const auto& [head_dim, group] : {std::pair(64, 1), {64, 7}, {96, 2}, {128, 4}}) {
    EXPECT_EQ(difference(cudnn_alone(), flash_alone(), head_dim, group, bf16), "") << head_dim << group;
    EXPECT_EQ(change_when_repeated(cudnn_alone(), head_dim, group, bf16), "") << head_dim << group;
  }
}

TEST(CudnnOrderedBackward, OnAGpuItHasTheSameBitsInABatchAndInAGraph) {
  const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
  if (!why.empty()) GTEST_SKIP() << why;
  const c10::Device gpu(c10::kCUDA, 0);
  if (compute_major(gpu) != 9 || !has_backward_plans()) return;
  Random random(4);
  const auto heads = [&](int64_t count) {
    return test::on_gpu(random.normal({3, 1024, count, 128}, at::kBFloat16)).transpose(1, 2);
  };
  const at::Tensor matrix = heads(24), grad = heads(16);
  const Qkv in{matrix.narrow(1, 0, 16), matrix.narrow(1, 16, 4), matrix.narrow(1, 20, 4)};
  const Attended of = cudnn_alone().forward(in, kScale);
  const auto backward = [&] { return cudnn_ordered_backward(grad, in, of, kScale); };
  const Qkv all = backward();
  const auto last = [](const at::Tensor& x) { return x.narrow(0, 2, 1); };
  expect_same(cudnn_ordered_backward(last(grad), {last(in.q), last(in.k), last(in.v)},
                                     {last(of.out), last(of.lse)}, kScale),
              {last(all.q), last(all.k), last(all.v)});
  const RecordedWork recorded = record_work(gpu, [&] {
    const Qkv to = backward();
    return std::vector<at::Tensor>{to.q, to.k, to.v};
  });
  ASSERT_TRUE(recorded.graph) << recorded.problem;
  recorded.graph->start();
  expect_same({recorded.later[0], recorded.later[1], recorded.later[2]}, all);
}

TEST(CudnnOrderedBackward, WithoutCudnnItSaysSo) {
  const std::string why = why_no_backward_plans();
  if (why.empty()) GTEST_SKIP() << "cuDNN is here";
  try {
    make_backward_plan({}, 0);
    FAIL() << "made";
  } catch (const std::exception& error) {
    EXPECT_EQ(error.what(), why);
  }
}

// FlashAttention's backward pass then stays.
TEST(CudnnOrderedBackward, IsNotUsedWithoutCudnn) {
  if (why_no_backward_plans().empty()) GTEST_SKIP() << "cuDNN is here";
  std::vector<std::string> lines;
  log::set_listener([&](log::Level, const std::string& text) { lines.push_back(text); });
  const at::Tensor heads = at::zeros({1, 2, 1024, 64}, at::kBFloat16);
  for (int i = 0; i < 2; i++) EXPECT_FALSE(uses_cudnn_backward({heads, heads, heads}, kScale));
  log::set_listener({});
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("FlashAttention is used instead of cuDNN's backward pass"), std::string::npos)
      << lines[0];
  EXPECT_TRUE(lines[0].ends_with(why_no_backward_plans())) << lines[0];
}

// An H100 as cuDNN describes one (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
constexpr auto kH100 = R"({"deviceVer": 900, "driverVer": 13000, "deviceName": "NVIDIA H100 80GB HBM3",
  "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "multiProcessorCount": 132,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536,
  "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 85029158912, "l2CacheSize": 52428800,
  "smClockRateKHz": 1980000, "memClockRateKHz": 2619000})";

// Makes cuDNN's plans, with a driver that takes every kernel (tests/nn/fake_driver). Ends with 0 if their
// workspaces are as counted.
[[noreturn]] void plan_for_an_h100(const std::string& cudnn) {
  const auto load = [](const std::string& library) {
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  };
  load(FAKE_DRIVER);
  load(cudnn);
  bool all = true;
  const auto plan = [&](int64_t heads, int64_t groups, int64_t length, int64_t head_dim) {
    const int64_t all_heads = (heads + 2 * groups) * head_dim, of_groups = groups * head_dim;
    try {
      const int64_t bytes =
          workspace_on(kH100, {heads, groups, length, head_dim, all_heads, of_groups, all_heads, 0.1});
      const int64_t more = bytes - cudnn_backward_bytes(heads, groups, length, head_dim);
      all = all && more >= 0 && more <= 512;
      std::fprintf(stderr, "%ld heads, %ld groups, %ld x %ld: %ld bytes, %ld more than counted\n", heads,
                   groups, length, head_dim, bytes, more);
    } catch (const std::exception& error) {
      all = false;
      std::fprintf(stderr, "%s\n", error.what());
    }
  };
  plan(32, 8, 2048, 128);
  plan(14, 2, 1024, 64);
  plan(8, 8, 8192, 64);
  std::_Exit(all ? 0 : 1);
}

// So cuDNN has a kernel for this graph, and the sum of its workspace is right.
TEST(CudnnOrderedBackwardDeathTest, CudnnHasPlansForAnH100) {
  const auto cudnn = std::filesystem::path(TORCH_DIR).parent_path() / "nvidia/cudnn/lib/libcudnn.so.9";
  if (!std::filesystem::exists(cudnn)) GTEST_SKIP() << "this torch has no cuDNN";
  if (!has_backward_plans()) GTEST_SKIP() << why_no_backward_plans();
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a new process, where no other driver is loaded
  EXPECT_EXIT(plan_for_an_h100(cudnn), testing::ExitedWithCode(0), "more than counted");
}

}  // namespace
}  // namespace trainer
