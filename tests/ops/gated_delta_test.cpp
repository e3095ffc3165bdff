// The gated delta rule and the causal convolution, compared with their definitions, token by token in fp64.
#include "ops/gated_delta.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "nn/causal_convolution.h"
#include "nn/gated_delta_rule.h"
#include "ops/causal_conv.h"
#include "ops/gated_delta_definition.h"
#include "support/planned_bytes.h"
#include "support/reference.h"

namespace trainer {
namespace {

at::Tensor conv_by_definition(const at::Tensor& x, const at::Tensor& weight, const TokenRuns& runs,
                              bool silu = true) {
  std::vector<at::Tensor> rows(static_cast<size_t>(x.size(0)), at::zeros({x.size(1)}, x.options()));
  const int64_t width = weight.size(2);
  for (const TokenRun& run : runs) {
    for (int64_t t = 0; t < run.tokens; t++) {
      at::Tensor sum = at::zeros({x.size(1)}, x.options());
      for (int64_t back = 0; back < std::min(width, t + 1); back++)
        sum = sum + weight.select(2, width - 1 - back).squeeze(1) * x[run.first + t - back];
      rows[static_cast<size_t>(run.first + t)] = silu ? at::silu(sum) : sum;
    }
  }
  return at::stack(rows);
}

struct Case {
  DeltaShape shape;
  TokenRuns runs;
  int64_t tokens;  // padding included
};

// Short and long runs, of less than a chunk, of whole chunks, and beyond the states that are kept; padding
// between them and behind; head sizes that are no multiples of a vector; several value heads a key head.
std::vector<Case> cases() {
  return {{{2, 4, 16, 16}, {{0, 5}, {5, 64}, {69, 1}}, 70},
          {{1, 3, 10, 24}, {{0, 130}, {140, 7}, {150, 600}}, 770},
          {{2, 2, 40, 8}, {{0, 3}, {16, 16}}, 32}};
}

// qkv, decay, beta, and the convolution's weight.
Tensors inputs_of(const Case& c) {
  Random random(7);
  const at::Tensor qkv = random.normal({c.tokens, c.shape.columns()});
  const at::Tensor decay = random.normal({c.tokens, c.shape.value_heads}).abs().mul(-0.7);
  return {qkv, decay, random.normal({c.tokens, c.shape.value_heads}).sigmoid(),
          random.normal({c.shape.columns(), 1, 4})};
}

at::Tensor whole_definition(const Tensors& in, const Case& c) {
  return by_definition({conv_by_definition(in[0], in[3], c.runs), in[1], in[2]}, c.shape, c.runs);
}

at::Tensor whole(const Tensors& in, const Case& c) {
  return gated_delta_rule({in[0], in[1], in[2]}, in[3], c.shape, c.runs);
}

TEST(GatedDelta, ValueAndEveryGradientAreTheDefinitions) {
  for (const Case& c : cases()) {
    const Tensors in = inputs_of(c);
    const at::Tensor weight = Random(8).normal({c.tokens, c.shape.values()});
    const auto definition = [&](const Tensors& t) { return whole_definition(t, c); };
    const Tensors exact = value_and_gradients(definition, in, weight, at::kDouble);
    const Tensors own =
        value_and_gradients([&](const Tensors& t) { return whole(t, c); }, in, weight, at::kFloat);
    for (size_t i = 0; i < own.size(); i++) EXPECT_LE(relative_difference(own[i], exact[i]), 2e-6) << i;
  }
}

// A GPU's form is composed of LibTorch's operators, and so are its gradients.
TEST(GatedDelta, ComposedOperatorsGiveTheSame) {
  for (const Case& c : cases()) {
    const Tensors in = inputs_of(c);
    const at::Tensor weight = Random(8).normal({c.tokens, c.shape.values()});
    const auto run = [&](const Tensors& t) { return whole(t, c); };
    const Tensors expected = value_and_gradients(run, in, weight, at::kFloat);
    const CpuActsAsGpu acts;
    const Tensors own = value_and_gradients(run, in, weight, at::kFloat);
    for (size_t i = 0; i < own.size(); i++) EXPECT_LE(relative_difference(own[i], expected[i]), 3e-6) << i;
    const DeltaResult states = gated_delta({in[0], in[1], in[2]}, c.shape, c.runs, true);
    EXPECT_LE(relative_difference(states.last_states,
                                  gated_delta_cpu({in[0], in[1], in[2]}, c.shape, c.runs, true).last_states),
              3e-6);
  }
}

TEST(GatedDelta, ARunHasTheSameBitsAloneAndAmongOthersOnAnyNumberOfThreads) {
  const Case c = cases()[1];
  const Tensors in = inputs_of(c);
  const at::Tensor weight = Random(8).normal({c.tokens, c.shape.values()});
  const auto part = [](const at::Tensor& x, const TokenRun& run) {
    return x.narrow(0, run.first, run.tokens);
  };
  const Tensors together =
      value_and_gradients([&](const Tensors& t) { return whole(t, c); }, in, weight, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const TokenRun& run : c.runs) {
    const Case alone{c.shape, {{0, run.tokens}}, run.tokens};
    const Tensors own = value_and_gradients([&](const Tensors& t) { return whole(t, alone); },
                                            {part(in[0], run), part(in[1], run), part(in[2], run), in[3]},
                                            part(weight, run), at::kFloat);
    for (size_t i = 0; i < 4; i++) EXPECT_TRUE(own[i].equal(part(together[i], run))) << run.first << " " << i;
  }
  at::set_num_threads(threads);
}

TEST(GatedDelta, ANotANumberInOneRunStaysThere) {
  const Case c = cases()[1];
  Tensors in = inputs_of(c);
  const at::Tensor weight = Random(8).normal({c.tokens, c.shape.values()});
  const auto run = [&](const Tensors& t) { return whole(t, c); };
  const Tensors clean = value_and_gradients(run, in, weight, at::kFloat);
  in[0].narrow(0, 0, 130).fill_(NAN);
  const Tensors other = value_and_gradients(run, in, weight, at::kFloat);
  EXPECT_TRUE(other[0].narrow(0, 0, 130).isnan().all().item<bool>());
  for (size_t i = 0; i < 4; i++)
    EXPECT_TRUE(other[i].narrow(0, 150, 600).equal(clean[i].narrow(0, 150, 600))) << i;
}

TEST(GatedDelta, GoesOnFromAState) {
  const DeltaShape shape{2, 4, 16, 24};
  const Case c{shape, {{0, 150}}, 150};
  const Tensors in = inputs_of(c);
  const at::Tensor all = gated_delta({in[0], in[1], in[2]}, shape, c.runs, false).out;
  at::Tensor state;
  int64_t begin = 0;
  for (const int64_t tokens : {70, 1, 1, 78}) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, begin, tokens); };
    const DeltaResult result =
        gated_delta({part(in[0]), part(in[1]), part(in[2]), state}, shape, {{0, tokens}}, true);
    EXPECT_LE(relative_difference(result.out, part(all)), 1e-6) << begin;
    state = result.last_states;
    begin += tokens;
  }
}

// As LFM2 has it, on a CPU and composed as for a GPU.
TEST(CausalConvolution, ValueAndBothGradientsAreTheDefinitions) {
  for (const Case& c : cases()) {
    const Tensors in{inputs_of(c)[0], inputs_of(c)[3]};
    const at::Tensor weight = Random(8).normal(in[0].sizes());
    const auto definition = [&](const Tensors& t) { return conv_by_definition(t[0], t[1], c.runs, false); };
    const auto run = [&](const Tensors& t) { return causal_convolution(t[0], t[1], c.runs); };
    const Tensors exact = value_and_gradients(definition, in, weight, at::kDouble);
    const Tensors own = value_and_gradients(run, in, weight, at::kFloat);
    const CpuActsAsGpu acts;
    const Tensors composed = value_and_gradients(run, in, weight, at::kFloat);
    for (size_t i = 0; i < exact.size(); i++) {
      EXPECT_LE(relative_difference(own[i], exact[i]), 1e-6) << i;
      EXPECT_LE(relative_difference(composed[i], exact[i]), 1e-6) << i;
    }
  }
}

// Without a first state, the first chunk of a run has no products with one.
TEST(GatedDelta, AStateOfZerosIsTheSameAsNone) {
  const DeltaShape shape{2, 4, 16, 24};
  const Case c{shape, {{0, 5}, {5, 64}, {69, 130}}, 199};
  const Tensors in = inputs_of(c);
  const at::Tensor zeros = at::zeros({3, shape.value_heads, shape.key_dim, shape.value_dim});
  const DeltaResult none = gated_delta({in[0], in[1], in[2]}, shape, c.runs, true);
  const DeltaResult given = gated_delta({in[0], in[1], in[2], zeros}, shape, c.runs, true);
  EXPECT_TRUE(none.out.equal(given.out));
  EXPECT_TRUE(none.last_states.equal(given.last_states));
}

// bf16 is rounded after the convolution and at the end; states and sums are in fp32.
TEST(GatedDelta, InBf16ItIsRoundedOnlyWhereATensorIs) {
  const Case c = cases()[1];
  Tensors in = inputs_of(c);
  for (const size_t i : {0, 3}) in[i] = in[i].to(at::kBFloat16);
  const at::Tensor mixed = causal_conv(in[0], in[3], c.runs, /*silu=*/true);
  const at::Tensor exact =
      by_definition({mixed.to(at::kDouble), in[1].to(at::kDouble), in[2].to(at::kDouble)}, c.shape, c.runs);
  const at::Tensor own = gated_delta({mixed, in[1], in[2]}, c.shape, c.runs, false).out;
  const double rounding = relative_difference(exact.to(at::kBFloat16), exact);
  EXPECT_LE(relative_difference(own, exact), 1.01 * rounding);
}

TEST(GatedDelta, APlanOfAGpuNeedsNoValues) {
  const Case c = cases()[1];
  const std::vector<int64_t> bytes = planned([&] {
    Tensors in;
    for (const at::Tensor& t : inputs_of(c)) in.push_back(at::empty_like(t, at::kMeta).requires_grad_(true));
    const at::Tensor out = whole(in, c);
    torch::autograd::grad({out}, in, {at::empty_like(out)});
  });
  EXPECT_GT(bytes.size(), 100);
}

}  // namespace
}  // namespace trainer
