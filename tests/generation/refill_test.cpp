// Inputs that take the places of others, whose answers have ended: each gets the answer that it gets alone.
#include <algorithm>
#include <set>

#include <ATen/core/grad_mode.h>

#include "trainer/generation/generate.h"

#include "gemm/few_rows.h"
#include "models/golden.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

using Answers = std::vector<std::vector<Tokens>>;

// Some longer than what counts as few rows.
std::vector<Tokens> many_inputs() {
  std::vector<Tokens> inputs;
  int32_t token = 1;
  for (const size_t length : {3, 9, 1, 40, 5, 2, 33, 12, 4, 7, 32, 1, 6, 50, 3}) {
    Tokens& input = inputs.emplace_back();
    for (size_t i = 0; i < length; i++) input.push_back(token = (token * 31 + 17) % 90 + 3);
  }
  return inputs;
}

// Ends answers after very different numbers of tokens.
GenerationHooks hooks_that_stop() {
  GenerationHooks hooks;
  hooks.stop = [](const Tokens& generated) { return generated.size() > 1 && generated.back() % 5 == 0; };
  return hooks;
}

std::vector<GenerationConfig> all_ways() {
  GenerationConfig greedy, samples, beams, sampled_beams;
  for (GenerationConfig* config : {&greedy, &samples, &beams, &sampled_beams}) {
    config->max_new_tokens = 40;
    config->repetition_penalty = 1.3;  // so that small models do not repeat one token
  }
  samples.do_sample = sampled_beams.do_sample = true;
  samples.num_return_sequences = 2;
  beams.num_beams = sampled_beams.num_beams = 3;
  beams.num_return_sequences = 2;
  return {greedy, samples, beams, sampled_beams};
}

Answers in_batches(const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config,
                   int64_t size, const GenerationHooks& hooks) {
  OomHandler batch_size(size);
  Answers answers;
  generate_in_batches(model, inputs, config, at::kCPU, batch_size, hooks,
                      [&](size_t input, const std::vector<Tokens>& of_one) {
                        EXPECT_EQ(input, answers.size());  // in the order of the inputs
                        answers.push_back(of_one);
                      });
  return answers;
}

Answers alone(const Model& model, const std::vector<Tokens>& inputs, const GenerationConfig& config) {
  Answers answers;
  for (size_t i = 0; i < inputs.size(); i++) {
    GenerationHooks hooks = hooks_that_stop();
    hooks.numbers = {i};
    answers.push_back(generate(model, {inputs[i]}, config, at::kCPU, hooks)[0]);
  }
  return answers;
}

class Refill : public ::testing::TestWithParam<std::string> {};

TEST_P(Refill, GivesEachInputTheAnswerThatItGetsAlone) {
  const Golden golden(GetParam());
  for (const GenerationConfig& config : all_ways()) {
    const Answers expected = alone(*golden.model, many_inputs(), config);
    std::set<size_t> lengths;
    for (const auto& of_one : expected) lengths.insert(of_one[0].size());
    EXPECT_GT(lengths.size(), 3u);
    for (const int64_t size : {1, 2, 5, 100})
      EXPECT_EQ(in_batches(*golden.model, many_inputs(), config, size, hooks_that_stop()), expected) << size;
  }
}

// In bf16 a difference in the last bit would soon be another token.
TEST_P(Refill, DoesSoInBf16ToTheBit) {
  {
    const at::NoGradGuard no_grad;
    if (!can_multiply_few_rows(at::empty({1, 1}), at::kFloat)) GTEST_SKIP() << "this processor has no AVX2";
  }
  // MKL and oneDNN may multiply the rows of long inputs in another order if there are more of them.
  std::vector<Tokens> inputs = many_inputs();
  if (!multiplies_builtin(at::kBFloat16))
    std::erase_if(inputs, [](const Tokens& input) { return input.size() > 32; });
  const Golden golden(GetParam(), at::kBFloat16);
  for (const GenerationConfig& config : all_ways()) {
    const Answers expected = alone(*golden.model, inputs, config);
    EXPECT_EQ(in_batches(*golden.model, inputs, config, 4, hooks_that_stop()), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Refill,
                         ::testing::Values("t5_v1_1", "umt5", "qwen2", "qwen3_lora", "gemma2",
                                           "gemma4_small_lora", "granite", "t5gemma", "t5gemma2", "qwen3_5",
                                           "lfm2"),
                         [](const auto& param) { return param.param; });

// Each step has as many rows as there are places, while inputs wait.
TEST(RefilledPlaces, AreNeverEmptyWhileInputsWait) {
  const Golden golden("qwen2");
  const std::vector<Tokens> inputs = many_inputs();
  const GenerationConfig config = all_ways().front();
  constexpr size_t places = 3;
  const Answers answers = in_batches(*golden.model, inputs, config, places, hooks_that_stop());
  // What a step needs: the first token comes with the input. Places are taken by whoever is next.
  std::vector<size_t> busy(places, 0);
  size_t one_batch_after_another = 0, longest = 0;
  for (size_t i = 0; i < inputs.size(); i++) {
    const size_t steps = answers[i][0].size() - 1;
    *std::ranges::min_element(busy) += steps;
    longest = i % places == 0 ? steps : std::max(longest, steps);
    if (i % places == places - 1) one_batch_after_another += longest;
  }
  size_t steps = 0;
  GenerationHooks hooks = hooks_that_stop();
  hooks.on_progress = [&](double) { steps++; };
  in_batches(*golden.model, inputs, config, places, hooks);
  EXPECT_EQ(steps, *std::ranges::max_element(busy));
  EXPECT_LT(steps, one_batch_after_another);
}

TEST(Progress, GrowsFromNothingToAllInputs) {
  const Golden golden("qwen2");
  GenerationConfig config;
  config.max_new_tokens = 20;
  std::vector<double> seen;
  GenerationHooks hooks;
  hooks.on_progress = [&](double answered) { seen.push_back(answered); };
  in_batches(*golden.model, std::vector<Tokens>(8, {5, 6, 7}), config, 4, hooks);
  ASSERT_EQ(seen.size(), 38u);      // two tokens come with the inputs
  EXPECT_NEAR(seen[0], 0.4, 1e-6);  // four answers of which 2 tokens of 20 are there
  EXPECT_NEAR(seen[9], 2.2, 1e-6);  // and 11
  EXPECT_NEAR(seen[18], 4.0, 1e-6);
  EXPECT_EQ(seen.back(), 8.0);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

}  // namespace
}  // namespace trainer
