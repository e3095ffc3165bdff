// T5 in bf16 with the kernels of a GPU, its attention in one of them, run on the CPU
// (support/emulated_gpu.h).
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/t5.h"
#include "ops/emulated_kernels.h"
#include "support/reference.h"

namespace trainer {
namespace {

nlohmann::json config_of(const std::string& type) {
  return {{"model_type", type},
          {"vocab_size", 50},
          {"d_model", 32},
          {"d_kv", 16},
          {"d_ff", 48},
          {"num_layers", 2},
          {"num_heads", 2},
          {"relative_attention_num_buckets", 8},
          {"pad_token_id", 0},
          {"relative_attention_max_distance", 20},
          {"dropout_rate", 0.1},
          {"decoder_start_token_id", 0},
          {"feed_forward_proj", "gated-gelu"}};
}

// Three samples of other lengths, and the gradients of the sum of their losses.
class Samples {
 public:
  explicit Samples(const std::string& type) : type_(type) {
    int32_t token = 1;
    for (const auto& [source, target] : {std::pair<int, int>{20, 9}, {7, 18}, {70, 4}}) {
      Sample sample;
      for (int i = 0; i < source; i++) sample.input_ids.push_back(token = token * 7 % 47 + 1);
      for (int i = 0; i < target; i++) sample.labels.push_back(token = token * 5 % 47 + 1);
      batch_.samples.push_back(sample);
    }
  }

  // The weights are bf16 numbers in either type.
  Tensors gradients(at::ScalarType dtype, bool packing, int64_t recompute = 0, bool few_forms = false) const {
    T5 model(config_of(type_), /*separate_head=*/true);
    model.set_dtype(dtype);
    Random random(3);
    model.for_each_parameter([&](const std::string&, Parameter& p) {
      const double size = p.shape.size() == 1 ? 1.0 : 0.3;
      p.value = (random.normal(p.shape) * size).to(at::kBFloat16).to(dtype).requires_grad_(true);
    });
    ForwardContext context;
    context.anchor = at::zeros({1}).set_requires_grad(true);
    context.training = true;
    context.recompute_blocks = recompute;
    CollateOptions options = model.collate_options();
    options.packing = packing;
    options.few_forms = few_forms;
    model.loss(collate(batch_, {0, 1, 2}, options, at::kCPU), context).loss.backward();
    Tensors out;
    model.for_each_parameter([&](const std::string&, Parameter& p) {
      const at::Tensor gradient = p.value.tensor().grad();
      out.push_back(gradient.defined() ? gradient : at::zeros(p.shape));
    });
    return out;
  }

 private:
  std::string type_;
  EffectiveBatch batch_;
};

double difference(const Tensors& ours, const Tensors& exact) {
  Tensors a, b;
  for (const at::Tensor& x : ours) a.push_back(x.flatten().to(at::kDouble));
  for (const at::Tensor& x : exact) b.push_back(x.flatten().to(at::kDouble));
  return relative_difference(at::cat(a), at::cat(b));
}

class T5InOneKernel : public ::testing::TestWithParam<const char*> {};

TEST_P(T5InOneKernel, IsAsCloseToFp32AsTheCpuInBf16WithDropoutOn) {
  const Samples samples(GetParam());
  const Tensors exact = samples.gradients(at::kFloat, false);
  const double cpu = difference(samples.gradients(at::kBFloat16, false), exact);
  OperatorsOnAnEmulatedGpu operators;
  for (const bool packing : {false, true}) {
    operators.gpu.take_used();
    EXPECT_LE(difference(samples.gradients(at::kBFloat16, packing), exact), 1.2 * cpu) << packing;
    const std::vector<std::string> used = operators.gpu.take_used();
    const auto uses = [&](const std::string& file) {
      return std::ranges::any_of(used, [&](const std::string& one) { return one.starts_with(file); });
    };
    EXPECT_TRUE(uses("t5_attention.cu")) << packing;
    EXPECT_FALSE(uses("attention_weights.cu") || uses("attention_heads.cu")) << packing;
  }
}

TEST_P(T5InOneKernel, RecomputingEveryBlockGivesTheSameBits) {
  const Samples samples(GetParam());
  const OperatorsOnAnEmulatedGpu operators;
  const Tensors kept = samples.gradients(at::kBFloat16, true),
                again = samples.gradients(at::kBFloat16, true, 4);
  for (size_t i = 0; i < kept.size(); i++) EXPECT_TRUE(again[i].equal(kept[i])) << i;
}

// Other products may add up in another order.
TEST_P(T5InOneKernel, PaddingToFewFormsChangesNothingButRoundings) {
  const Samples samples(GetParam());
  const Tensors exact = samples.gradients(at::kFloat, false);
  const OperatorsOnAnEmulatedGpu operators;
  const double plain = difference(samples.gradients(at::kBFloat16, true), exact);
  const Tensors padded = samples.gradients(at::kBFloat16, true, 0, /*few_forms=*/true);
  EXPECT_LE(difference(padded, exact), 1.1 * plain);
}

INSTANTIATE_TEST_SUITE_P(Families, T5InOneKernel, ::testing::Values("t5", "umt5"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainer
