// A forward and a backward pass of attention of different makes: with LibTorch's CPU operators in their
// place, and what is done where a card's do not agree.
#include "nn/ordered_cudnn_attention.h"

#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "trainer/base/log.h"

#include "memory/asked_once.h"
#include "nn/checkpoint.h"
#include "nn/remade_heads.h"
#include "support/reference.h"

namespace trainer {
namespace {

constexpr double kScaleOfScores = 0.3;

Attended cpu_forward(const Qkv& in, double scale) {
  const auto [out, lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(in.q, in.k, in.v, 0.0, true, {}, scale);
  return {out, lse};
}

Qkv cpu_backward(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  const auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, in.q, in.k, in.v, of.out, of.lse, 0.0, true, {}, scale);
  return {q, k, v};
}

constexpr AttentionKernels kOnCpu{cpu_forward, cpu_backward};

// [2, heads, 40, 16], laid out by position as projections give them.
at::Tensor random_heads(Random& random, int64_t heads, at::ScalarType type = at::kFloat) {
  return random.normal({2, 40, heads, 16}, type).transpose(1, 2);
}

// Every matrix kept, by plain autograd.
at::Tensor plain_attention(const Tensors& t) {
  const int64_t group = t[0].size(1) / t[1].size(1), length = t[0].size(2);
  const at::Tensor k = t[1].repeat_interleave(group, 1), v = t[2].repeat_interleave(group, 1);
  const at::Tensor hidden = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores =
      at::matmul(t[0], k.transpose(2, 3)).mul(kScaleOfScores).masked_fill(hidden, -INFINITY);
  return at::matmul(at::softmax(scores, -1), v);
}

at::Tensor by_two_kernels(const Tensors& t) {
  return causal_attention({t[0], t[1], t[2]}, kScaleOfScores, kOnCpu);
}

TEST(OrderedCudnnAttention, ValueAndGradientsAreThoseOfFp64) {
  Random random(3);
  for (const int64_t group : {1, 3}) {
    const Tensors in{random_heads(random, 2 * group), random_heads(random, 2), random_heads(random, 2)};
    const at::Tensor weight = random_heads(random, 2 * group);
    const Tensors ours = value_and_gradients(by_two_kernels, in, weight, at::kFloat),
                  exact = value_and_gradients(plain_attention, in, weight, at::kDouble);
    for (size_t i = 0; i < ours.size(); i++)
      EXPECT_LE(relative_difference(ours[i], exact[i]), 1e-6) << group << i;
  }
}

TEST(OrderedCudnnAttention, WithoutGradientsNothingIsKept) {
  Random random(4);
  const Tensors in{random_heads(random, 4), random_heads(random, 2), random_heads(random, 2)};
  EXPECT_FALSE(by_two_kernels(in).grad_fn());
  in[0].requires_grad_(true);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(by_two_kernels(in).grad_fn());
}

TEST(OrderedCudnnAttention, ASecondBackwardPassIsAnErrorAndHoldsNoMemory) {
  Random random(5);
  const at::Tensor q = random_heads(random, 4).clone(), leaf = random_heads(random, 2).requires_grad_(true);
  const at::Tensor out = by_two_kernels({q, leaf, leaf});
  EXPECT_EQ(q.use_count(), 2);
  const at::Tensor weight = at::ones_like(out);
  torch::autograd::grad({out}, {leaf}, {weight});
  EXPECT_EQ(q.use_count(), 1);
  EXPECT_THROW(torch::autograd::grad({out}, {leaf}, {weight}), c10::Error);
}

TEST(OrderedCudnnAttention, ARecomputedBlockHasTheSameBits) {
  Random random(7);
  const Tensors in{random_heads(random, 4), random_heads(random, 2), random_heads(random, 2)};
  const at::Tensor weight = random_heads(random, 4), anchor = at::zeros({1}).set_requires_grad(true);
  const auto block = [&in](const at::Tensor& q, const std::optional<at::Tensor>&) {
    return by_two_kernels({q, q.narrow(1, 0, 2), in[2]});
  };
  const auto recomputed = [&](const Tensors& t) { return checkpoint(t[0], std::nullopt, anchor, {block}); };
  const auto kept = [&](const Tensors& t) { return block(t[0], std::nullopt); };
  const Tensors ours = value_and_gradients(recomputed, {in[0]}, weight, at::kFloat),
                theirs = value_and_gradients(kept, {in[0]}, weight, at::kFloat);
  for (size_t i = 0; i < ours.size(); i++) EXPECT_TRUE(ours[i].equal(theirs[i])) << i;
}

// As `light` checkpointing has it: q and k are made from others and not kept.
TEST(OrderedCudnnAttention, RemadeHeadsAreNotKept) {
  Random random(6);
  const Tensors in{random_heads(random, 4), random_heads(random, 2), random_heads(random, 2)};
  const at::Tensor weight = random_heads(random, 4);
  const Tensors kept = value_and_gradients(
      [](const Tensors& t) {
        return by_two_kernels({t[0] * 2, t[1] * 2, t[2]});
      },
      in, weight, at::kFloat);
  int made = 0;
  int64_t owners = 0;
  const auto remaking = [&](const Tensors& t) {
    const at::Tensor q = t[0] * 2, k = t[1] * 2;
    const auto heads = std::make_shared<RemadeHeads>(QkPair{q, k}, Tensors{t[0].detach(), t[1].detach()},
                                                     [&made](const Tensors& from) {
                                                       made++;
                                                       return QkPair{from[0] * 2, from[1] * 2};
                                                     });
    const at::Tensor out = by_two_kernels({q, k, t[2]});
    heads->replace_in(out);
    owners = static_cast<int64_t>(q.storage().use_count() + k.storage().use_count());
    return out;
  };
  const Tensors remade = value_and_gradients(remaking, in, weight, at::kFloat);
  EXPECT_EQ(owners, 2) << "only this test";
  EXPECT_EQ(made, 1) << "both at once";
  for (size_t i = 0; i < kept.size(); i++) EXPECT_TRUE(remade[i].equal(kept[i])) << i;
}

// A resumed run decides as the whole one did: by the length alone. Few lengths are taken.
TEST(OrderedCudnnAttention, IsForLengthsThatAreFew) {
  EXPECT_TRUE(comes_in_few_lengths(2048));
  EXPECT_TRUE(comes_in_few_lengths(1024));
  EXPECT_FALSE(comes_in_few_lengths(2047));
  EXPECT_FALSE(comes_in_few_lengths(256));
  EXPECT_FALSE(comes_in_few_lengths(1));
  int taken = 0;
  for (int64_t length = 1; length <= 8192; length++) taken += comes_in_few_lengths(length) ? 1 : 0;
  EXPECT_LT(taken, 32);
}

Attended in_base_two(const Qkv& in, double scale) {
  const Attended of = cpu_forward(in, scale);
  return {of.out, of.lse * 1.4427};
}

Attended with_a_last_dimension(const Qkv& in, double scale) {
  const Attended of = cpu_forward(in, scale);
  return {of.out, of.lse.unsqueeze(3)};
}

Attended not_causal(const Qkv& in, double scale) {
  const auto [out, lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(in.q, in.k, in.v, 0.0, false, {}, scale);
  return {out, lse};
}

Attended with_a_nan(const Qkv& in, double scale) {
  const Attended of = cpu_forward(in, scale);
  of.out.select(0, 1).select(0, 0).select(0, 7).fill_(NAN);
  return of;
}

Qkv heads_mixed_up(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  const Qkv to = cpu_backward(grad, in, of, scale);
  return {to.q, to.k.flip(1), to.v};
}

TEST(OrderedCudnnAttention, KernelsThatDoNotAgreeAreFound) {
  const auto found = [](const AttentionKernels& ours, at::ScalarType type = at::kBFloat16) {
    return difference(ours, kOnCpu, 64, 4, type);
  };
  EXPECT_EQ(found(kOnCpu), "");
  EXPECT_EQ(found(kOnCpu, at::kFloat), "");
  EXPECT_NE(found({in_base_two, cpu_backward}).find("sums of weights differs"), std::string::npos);
  EXPECT_NE(found({with_a_last_dimension, cpu_backward}).find("shape"), std::string::npos);
  EXPECT_NE(found({not_causal, cpu_backward}).find("result differs"), std::string::npos);
  EXPECT_NE(found({with_a_nan, cpu_backward}).find("result differs"), std::string::npos);
  EXPECT_NE(found({cpu_forward, heads_mixed_up}).find("gradient of k differs"), std::string::npos);
}

// bf16's own rounding is no difference.
TEST(OrderedCudnnAttention, KernelsThatRoundOtherwiseAgree) {
  constexpr AttentionKernels in_fp32{
      [](const Qkv& in, double scale) {
        const auto wide = [](const at::Tensor& x) { return x.to(at::kFloat); };
        const Attended of = cpu_forward({wide(in.q), wide(in.k), wide(in.v)}, scale);
        return Attended{of.out.to(in.q.scalar_type()), of.lse};
      },
      cpu_backward};
  for (const int64_t group : {1, 4}) EXPECT_EQ(difference(in_fp32, kOnCpu, 128, group, at::kBFloat16), "");
}

// Adds to the gradient of q in another order in every other call.
Qkv without_an_order(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  static bool other = false;
  Qkv to = cpu_backward(grad, in, of, scale);
  other = !other;
  if (other) to.q.select(2, 1000).select(2, 3).add_(1e-3);
  return to;
}

TEST(OrderedCudnnAttention, GradientsThatChangeFromCallToCallAreFound) {
  EXPECT_EQ(change_when_repeated(kOnCpu, 16, 2, at::kFloat), "");
  EXPECT_EQ(change_when_repeated({cpu_forward, without_an_order}, 16, 2, at::kFloat),
            "the gradient of q changes from call to call");
}

class AskedOnceOfKernels : public testing::Test {
 protected:
  AskedOnceOfKernels() {
    log::set_listener([this](log::Level, const std::string& text) { lines_.push_back(text); });
  }
  ~AskedOnceOfKernels() override { log::set_listener({}); }

  bool works(int64_t key, const std::function<std::string()>& fault) {
    return asked_.works({0, key}, [&] {
      calls_++;
      return fault();
    });
  }

  AskedOnce asked_{"cuDNN's forward pass of attention", "device, head size", "FlashAttention"};
  std::vector<std::string> lines_;
  int calls_ = 0;
};

TEST_F(AskedOnceOfKernels, AnAnswerHoldsAndOneLineSaysWhatDoesNotWork) {
  const auto right = [] { return std::string(); };
  const auto wrong = [] { return std::string("the result differs by 0.5"); };
  for (int i = 0; i < 3; i++) EXPECT_TRUE(works(64, right));
  EXPECT_TRUE(lines_.empty());
  for (int i = 0; i < 3; i++) EXPECT_FALSE(works(128, wrong));
  EXPECT_EQ(calls_, 2);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_NE(lines_[0].find("[0, 128]): the result differs by 0.5"), std::string::npos) << lines_[0];
  EXPECT_TRUE(works(64, wrong)) << "known";
}

TEST_F(AskedOnceOfKernels, AnErrorOfTheLibraryIsAnAnswer) {
  const auto refuses = []() -> std::string { throw std::runtime_error("No valid plans built.\nat line 3"); };
  for (int i = 0; i < 2; i++) EXPECT_FALSE(works(64, refuses));
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_TRUE(lines_[0].ends_with("No valid plans built.")) << lines_[0];
}

// The step is then repeated with less, and asks again.
TEST_F(AskedOnceOfKernels, ALackOfMemoryIsNone) {
  EXPECT_THROW(works(64, []() -> std::string { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_TRUE(works(64, [] { return std::string(); }));
  EXPECT_TRUE(lines_.empty());
}

}  // namespace
}  // namespace trainer
