// The loss on a GPU: its kernel, run on the CPU (support/emulated_gpu.h), and what is launched and allocated.
#include <algorithm>
#include <limits>
#include <set>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "ops/kernels.h"
#include "ops/linear_cross_entropy.h"
#include "support/compile_kernels.h"
#include "support/emulated_gpu.h"
#include "support/planned_bytes.h"
#include "support/reference.h"

namespace float_8 {
using Element = float;
constexpr int kWidth = 8;
#include "ops/linear_cross_entropy.cu"
}  // namespace float_8
namespace bf16_8 {
using Element = bf16;
constexpr int kWidth = 8;
#include "ops/linear_cross_entropy.cu"
}  // namespace bf16_8

namespace trainer {
namespace {

constexpr LossGradients kBoth{true, true}, kNone{};

class EmulatedGpu : public emulated::Gpu {
 public:
  EmulatedGpu() {
    using emulated::Callable;
    add("linear_cross_entropy.cu", "Element=float kWidth=8", "loss_of_rows",
        Callable<float_8::loss_of_rows>::call);
    add("linear_cross_entropy.cu", "Element=bf16 kWidth=8", "loss_of_rows",
        Callable<bf16_8::loss_of_rows>::call);
  }
};

class LossOnAnEmulatedGpu : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  bool bf16() const { return type() == at::kBFloat16; }
  at::Tensor normal(at::IntArrayRef shape) { return random_.normal(shape, type()); }

  // Compares with what the CPU computes in fp32. bf16: the gradients of the logits and those of the inputs
  // are rounded once each, by at most 2^-8 of a value and 0.43 of that in the root mean square; both together
  // stay below 2^-8, also where gradients of rows with different signs partly cancel.
  void expect_the_cpus(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                       const LossOptions& options, const at::Tensor& row_weights = {}) {
    const LossParts cpu =
        loss_parts_cpu(hidden.to(at::kFloat), weight.to(at::kFloat), labels, options, kBoth, row_weights);
    const LossParts gpu = loss_parts_gpu(hidden, weight, labels, options, kBoth, row_weights);
    EXPECT_LE(relative_difference(gpu.loss, cpu.loss), 5e-7);
    EXPECT_EQ(gpu.z_loss.defined(), options.z_loss > 0);
    EXPECT_EQ(gpu.log_probabilities.defined(), options.log_probabilities);
    if (options.z_loss > 0) {
      EXPECT_LE(relative_difference(gpu.z_loss, cpu.z_loss), 5e-7);
    }
    if (options.log_probabilities) {
      EXPECT_LE(relative_difference(gpu.log_probabilities, cpu.log_probabilities), 5e-7);
    }
    EXPECT_TRUE(gpu.correct.equal(cpu.correct));
    EXPECT_LE(relative_difference(gpu.g_hidden, cpu.g_hidden), bf16() ? 0x1p-8 : 1e-6);
    EXPECT_LE(relative_difference(gpu.g_weight, cpu.g_weight), bf16() ? 0x1p-8 : 1e-6);
    EXPECT_EQ(gpu.loss.scalar_type(), at::kFloat);
    EXPECT_EQ(gpu.correct.scalar_type(), at::kLong);
    EXPECT_EQ(gpu.g_hidden.scalar_type(), type());
    EXPECT_EQ(gpu.g_weight.scalar_type(), type());
    EXPECT_EQ(gpu.g_hidden.strides(), hidden.strides());
  }

  Random random_{29};
  EmulatedGpu gpu_;
};

TEST_P(LossOnAnEmulatedGpu, IsTheCpus) {
  for (const int64_t vocab : {3, 7, 33, 256, 1000, 4099, 8200}) {
    const at::Tensor hidden = normal({5, 12}), weight = normal({vocab, 12}),
                     labels = (at::arange(5) * 977).remainder(vocab);
    for (const double smoothing : {0.0, 0.1}) {
      for (const double soft_cap : {0.0, 3.0}) {
        SCOPED_TRACE(testing::Message() << vocab << " " << smoothing << " " << soft_cap);
        expect_the_cpus(hidden, weight, labels, {smoothing, true, soft_cap});
      }
    }
  }
}

TEST_P(LossOnAnEmulatedGpu, WithWeightsAndZLossIsTheCpus) {
  LossOptions options{0.1, true, 3.0};
  options.z_loss = 0.01;
  options.log_probabilities = true;
  const at::Tensor weights = random_.normal({5}, at::kFloat).abs();
  for (const int64_t vocab : {7, 1000, 4099}) {
    SCOPED_TRACE(vocab);
    expect_the_cpus(normal({5, 12}), normal({vocab, 12}), (at::arange(5) * 977).remainder(vocab), options,
                    weights);
  }
}

TEST_P(LossOnAnEmulatedGpu, WithFocalLossAndATeacherIsTheCpus) {
  const at::Tensor weights = random_.normal({5}, at::kFloat).abs();
  for (const int64_t vocab : {7, 1000}) {
    for (const double soft_cap : {0.0, 3.0}) {
      SCOPED_TRACE(testing::Message() << vocab << " " << soft_cap);
      LossOptions options{0.1, true, soft_cap};
      options.focal_gamma = 2;
      options.z_loss = 0.01;
      const auto [values, ids] = random_.normal({5, vocab}, at::kFloat).log_softmax(1).topk(4, 1);
      options.teacher.ids = ids;
      options.teacher.log_probs = values;
      options.teacher.temperature = 2;
      const at::Tensor hidden = normal({5, 12}), weight = normal({vocab, 12}),
                       labels = (at::arange(5) * 977).remainder(vocab);
      expect_the_cpus(hidden, weight, labels, options, weights);
      EXPECT_LE(
          relative_difference(
              loss_parts_gpu(hidden, weight, labels, options, kBoth, weights).divergence,
              loss_parts_cpu(hidden.to(at::kFloat), weight.to(at::kFloat), labels, options, kBoth, weights)
                  .divergence),
          2e-6);
    }
  }
}

TEST_P(LossOnAnEmulatedGpu, WithWeightsOfOneHasTheSameBits) {
  const at::Tensor hidden = normal({9, 8}), weight = normal({777, 8}), labels = at::arange(9) * 80;
  const LossParts plain = loss_parts_gpu(hidden, weight, labels, {0.1}, kBoth),
                  ones = loss_parts_gpu(hidden, weight, labels, {0.1}, kBoth, at::ones({9}));
  EXPECT_TRUE(ones.loss.equal(plain.loss));
  EXPECT_TRUE(ones.g_hidden.equal(plain.g_hidden));
  EXPECT_TRUE(ones.g_weight.equal(plain.g_weight));
}

// Each chunk finds the last one's gradients where its logits go. One type: it takes seconds.
class LossInChunks : public LossOnAnEmulatedGpu {};

TEST_P(LossInChunks, IsTheCpus) {
  const int64_t rows = 260, vocab = 130'001;  // small chunks: two of 130 rows
  const at::Tensor labels = (at::arange(rows) * 9973).remainder(vocab);
  LossOptions options{0.1, true, 0.0, true};
  options.log_probabilities = true;
  expect_the_cpus(normal({rows, 4}), normal({vocab, 4}), labels, options, at::arange(rows) / 100.0f);
}

// The hidden states are the identity, so that the weight's columns are the logits and its gradient is theirs.
TEST_P(LossOnAnEmulatedGpu, OfExtremeLogitsIsExact) {
  const int64_t vocab = 1003;
  const float big = 3e38f;
  at::Tensor logits = (random_.normal({8, vocab}, at::kFloat) * 4).to(type()).to(at::kFloat);
  logits[1].mul_(4096);
  logits[2].add_(10240);
  logits[3].fill_(-10240);
  logits[4].fill_(-10240)[1002] = 10240;
  logits[5].fill_(-10240)[17] = 10240;
  logits[6][5] = big;
  logits[7].fill_(-big)[0] = -10240;
  logits = logits.to(type());
  const at::Tensor labels = at::tensor(std::vector<int64_t>{0, 500, 1002, 3, 1002, 18, 5, 0});
  for (const double smoothing : {0.0, 0.1}) {
    if (smoothing > 0) logits.slice(0, 6).fill_(1);  // a mean over 3e38 is none
    const at::Tensor log_p = at::log_softmax(logits.to(at::kDouble), 1);
    const at::Tensor expected =
        at::full({8, vocab}, smoothing / static_cast<double>(vocab), log_p.options())
            .scatter_add(1, labels.unsqueeze(1), at::full({8, 1}, 1 - smoothing, log_p.options()));
    const double loss = -(expected * log_p).sum().item<double>();
    const LossParts parts =
        loss_parts_gpu(at::eye(8, type()), logits.t().contiguous(), labels, {smoothing, true}, kBoth);
    EXPECT_NEAR(parts.loss.item<double>(), loss, 3e-7 * loss);
    EXPECT_EQ(parts.correct.item<int64_t>(), logits.argmax(1).eq(labels).sum().item<int64_t>());
    const at::Tensor off = (parts.g_weight.t().to(at::kDouble) - (log_p.exp() - expected)).abs();
    EXPECT_LE(off.max().item<double>(), bf16() ? 2e-3 : 3e-7);  // bf16: half a step below 1
  }
}

TEST_P(LossOnAnEmulatedGpu, CountsTheFirstOfEqualLogits) {
  at::Tensor logits = at::zeros({4, 900}, type());
  logits.slice(1, 300, 302).fill_(2);
  const at::Tensor labels = at::tensor(std::vector<int64_t>{300, 301, 0, 899});
  for (const double soft_cap : {0.0, 1e-3}) {
    const LossParts parts =
        loss_parts_gpu(at::eye(4, type()), logits.t().contiguous(), labels, {0.0, true, soft_cap}, kNone);
    EXPECT_EQ(parts.correct.item<int64_t>(), 1);
  }
}

TEST_P(LossOnAnEmulatedGpu, WithoutGradientsHasTheSameBits) {
  const at::Tensor hidden = normal({9, 8}), weight = normal({777, 8}), labels = at::arange(9) * 80;
  const LossOptions options{0.1, true, 5.0};
  const LossParts both = loss_parts_gpu(hidden, weight, labels, options, kBoth),
                  none = loss_parts_gpu(hidden, weight, labels, options, kNone);
  EXPECT_TRUE(none.loss.equal(both.loss));
  EXPECT_TRUE(none.correct.equal(both.correct));
  EXPECT_FALSE(none.g_hidden.defined());
  EXPECT_FALSE(none.g_weight.defined());
  const LossParts one = loss_parts_gpu(hidden, weight, labels, options, {true, false});
  EXPECT_TRUE(one.g_hidden.equal(both.g_hidden));
  EXPECT_FALSE(one.g_weight.defined());
}

TEST_P(LossOnAnEmulatedGpu, OfNoRowsIsZero) {
  const LossParts parts =
      loss_parts_gpu(normal({0, 8}), normal({33, 8}), at::empty({0}, at::kLong), {0.0, true}, {true, false});
  EXPECT_EQ(parts.loss.item<float>(), 0.0f);
  EXPECT_EQ(parts.correct.item<int64_t>(), 0);
  EXPECT_EQ(parts.g_hidden.sizes(), (std::vector<int64_t>{0, 8}));
}

TEST_P(LossOnAnEmulatedGpu, OfALabelOutsideTheVocabularyIsNotANumber) {
  const LossOptions options{0.0, true};
  for (const int64_t label : {-1, 33, 40}) {
    const LossParts parts =
        loss_parts_gpu(normal({1, 8}), normal({33, 8}), at::full({1}, label), options, kNone);
    EXPECT_TRUE(parts.loss.isnan().item<bool>());
    EXPECT_EQ(parts.correct.item<int64_t>(), 0);
  }
}

TEST_P(LossOnAnEmulatedGpu, OfALogitThatIsNotANumberIsNone) {
  at::Tensor hidden = normal({3, 8});
  hidden[1][2] = std::numeric_limits<float>::quiet_NaN();
  const LossParts parts = loss_parts_gpu(hidden, normal({33, 8}), at::arange(3), {}, {true, false});
  EXPECT_TRUE(parts.loss.isnan().item<bool>());
  EXPECT_TRUE(parts.g_hidden[1].isnan().all().item<bool>());
  EXPECT_FALSE(parts.g_hidden[0].isnan().any().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Types, LossInChunks, ::testing::Values(at::kBFloat16));
INSTANTIATE_TEST_SUITE_P(Types, LossOnAnEmulatedGpu, ::testing::Values(at::kFloat, at::kBFloat16));

TEST(LossKernel, IsCompiledByNvrtc) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  test::expect_compiles(kernel_file("linear_cross_entropy"), EmulatedGpu());
}

// Kernels that only write down their starts.
class Counted : public Kernels {
 public:
  explicit Counted(std::vector<std::string>& started) : started_(&started) {
    set_kernels_for_cpu([this](const KernelFile&, const std::string&) { return this; });
  }
  ~Counted() override { set_kernels_for_cpu({}); }

 protected:
  void launch(const char* function, const KernelGrid&, std::span<const KernelArgument>) const override {
    started_->emplace_back(function);
  }

 private:
  std::vector<std::string>* started_;
};

// Whether an operator launches nothing itself; those of this program are seen by their kernels.
bool launches_nothing(const std::string& name) {
  static const std::set<std::string> names{"aten::narrow",     "aten::slice",      "aten::t",
                                           "aten::transpose",  "aten::view",       "aten::empty",
                                           "aten::empty_like", "aten::contiguous", "aten::resolve_conj",
                                           "aten::to",         "aten::as_strided", "aten::empty_strided"};
  return names.contains(name) || name.starts_with("trainer::");
}

// What `work` launches on a GPU, in order: kernels, and LibTorch's operators without those inside of them.
std::vector<std::string> launches(const std::function<void()>& work) {
  static std::vector<std::string> seen;
  static int depth = 0;
  seen.clear();
  const auto begin = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    if (!launches_nothing(call.name()) && depth++ == 0) seen.emplace_back(call.name());
    return nullptr;
  };
  const auto end = [](const at::RecordFunction& call, at::ObserverContext*) {
    if (!launches_nothing(call.name())) depth--;
  };
  const Counted counted(seen);
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  return seen;
}

TEST(LossKernel, IsOneLaunchBetweenAChunksProducts) {
  using Names = std::vector<std::string>;
  const at::Tensor hidden = at::ones({2048, 4}), weight = at::ones({40'000, 4}),
                   labels = at::zeros({2048}, at::kLong);
  const auto launched = [&](const LossOptions& options, const LossGradients& wanted) {
    return launches([&] { loss_parts_gpu(hidden, weight, labels, options, wanted); });
  };
  // two chunks of 1,024 rows
  EXPECT_EQ(launched({0.1, false, 30.0}, {true, false}),
            (Names{"aten::mm", "loss_of_rows", "aten::mm", "aten::mm", "loss_of_rows", "aten::mm",
                   "aten::sum", "aten::zeros"}));
  EXPECT_EQ(launched({}, kBoth),
            (Names{"aten::mm", "loss_of_rows", "aten::mm", "aten::mm", "aten::mm", "loss_of_rows", "aten::mm",
                   "aten::addmm_", "aten::sum", "aten::zeros"}));
  // three of at most 838, also in evaluation
  const LossOptions small{0.0, true, 0.0, true};
  EXPECT_EQ(launched(small, {true, false}).size(), 3u * 3 + 2);
  EXPECT_EQ(launched({0.0, true}, kNone).size(), 3u * 2 + 2);
  // weights and probabilities take none
  LossOptions probabilities;
  probabilities.log_probabilities = true;
  const std::vector<std::string> weighted = launches([&] {
    loss_parts_gpu(hidden, weight, labels, probabilities, {true, false}, at::ones({2048}));
  });
  EXPECT_EQ(std::ranges::count(weighted, "loss_of_rows"), 2);
}

TEST(LossKernel, APlanCountsTheLogitsOfAChunkOnce) {
  using Bytes = std::vector<int64_t>;
  const at::TensorOptions options = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  constexpr int64_t rows = 2500, vocab = 151'937, padded = 151'944;  // three chunks of 834 rows
  const at::Tensor hidden = at::empty({rows, 64}, options), weight = at::empty({vocab, 64}, options),
                   labels = at::empty({rows}, options.dtype(at::kLong));
  const auto bytes = [&](const LossOptions& o, const LossGradients& wanted) {
    return planned([&] { loss_parts_gpu(hidden, weight, labels, o, wanted); });
  };
  EXPECT_EQ(bytes({}, {true, false}), (Bytes{rows * 4, rows * 64 * 2, 834 * padded * 4, 4, 8}));
  // twelve of at most 220 rows
  EXPECT_EQ(bytes({0.0, true, 0.0, true}, {true, false}),
            (Bytes{rows * 4, rows * 8, rows * 64 * 2, 209 * padded * 4, 4, 8}));
  EXPECT_EQ(bytes({}, kNone), (Bytes{rows * 4, 209 * padded * 4, 4, 8}));
}

}  // namespace
}  // namespace trainer
