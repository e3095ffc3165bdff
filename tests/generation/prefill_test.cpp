// Prompts of different lengths go through the model one after another: each gets the scores that it gets
// alone, and no padding is computed.
#include <algorithm>
#include <numeric>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/generation/generate.h"

#include "models/golden.h"
#include "support/counting_allocator.h"
#include "support/error_message.h"
#include "support/product_rows.h"

namespace trainer {
namespace {

constexpr double kPrefillTolerance = 1e-5;  // relative 2-norm of a row of scores

using Prompts = std::vector<Tokens>;

Prompts prompts_of_lengths(const std::vector<size_t>& lengths) {
  Prompts prompts;
  int32_t token = 1;
  for (const size_t length : lengths) {
    Tokens& prompt = prompts.emplace_back();
    for (size_t i = 0; i < length; i++) prompt.push_back(token = (token * 31 + 17) % 90 + 3);
  }
  return prompts;
}

// Some are longer than the windows of Mistral and Gemma (6) and than the positions that Qwen3's rotary
// embedding of type dynamic knows (16).
Prompts uneven_prompts() { return prompts_of_lengths({7, 1, 29, 2, 16, 29, 40}); }

MicroBatch laid_out_prompts(const Model& model, const Prompts& prompts, bool packing) {
  EffectiveBatch batch;
  for (const Tokens& prompt : prompts) batch.samples.push_back({prompt, {}});
  std::vector<int64_t> slots(prompts.size());
  std::iota(slots.begin(), slots.end(), 0);
  CollateOptions options = model.collate_options();
  options.packing = packing;
  return collate(batch, slots, options, at::kCPU);
}

// The fp32 scores after the prompts, after a token, and after two more for the rows that are kept. A token is
// chosen by its prompt, so that it is the same in any batch.
std::vector<at::Tensor> scores(const Model& model, const Prompts& prompts, bool packing,
                               const std::vector<int64_t>& kept) {
  at::NoGradGuard no_grad;
  std::vector<int64_t> rows(prompts.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto tokens = [&](int64_t step) {
    std::vector<int64_t> out;
    for (const int64_t row : rows) out.push_back((prompts[static_cast<size_t>(row)].back() + step) % 97);
    return at::tensor(out, at::kLong);
  };
  const auto generation = model.generate(at::kCPU);
  std::vector<at::Tensor> out{generation->add(laid_out_prompts(model, prompts, packing))};
  if (model.encoder_decoder())
    out[0] = generation->next(
        at::full({std::ssize(prompts)}, model.collate_options().decoder_start_id, at::kLong));
  out.push_back(generation->next(tokens(1)));
  generation->select(kept);
  rows = kept;
  out.push_back(generation->next(tokens(2)));
  out.push_back(generation->next(tokens(3)));
  return out;
}

void expect_scores_of_each_alone(const Model& model, const Prompts& prompts, bool packing) {
  const std::vector<int64_t> kept{5, 2, 2, 1, 6};
  const std::vector<at::Tensor> together = scores(model, prompts, packing, kept);
  for (size_t number = 0; number < prompts.size(); number++) {
    const std::vector<at::Tensor> alone = scores(model, {prompts[number]}, false, {0});
    const auto compare = [&](size_t step, int64_t row) {
      EXPECT_LE(relative_error(together[step][row], alone[step][0]), kPrefillTolerance)
          << "prompt " << number << ", step " << step;
    };
    for (const size_t step : {0, 1}) compare(step, static_cast<int64_t>(number));
    for (int64_t row = 0; row < std::ssize(kept); row++) {
      if (kept[static_cast<size_t>(row)] != static_cast<int64_t>(number)) continue;
      for (const size_t step : {2, 3}) compare(step, row);
    }
  }
}

class Prefill : public ::testing::TestWithParam<std::string> {};

TEST_P(Prefill, EachPromptGetsTheScoresThatItGetsAlone) {
  const Golden golden(GetParam());
  for (const bool packing : {true, false}) {
    SCOPED_TRACE(packing ? "packed" : "padded");
    expect_scores_of_each_alone(*golden.model, uneven_prompts(), packing);
  }
}

TEST_P(Prefill, PackedInBf16IsAsCloseToFp32AsEachPromptAlone) {
  const Golden fp32(GetParam()), bf16(GetParam(), at::kBFloat16);
  const Prompts prompts = uneven_prompts();
  const std::vector<int64_t> all{0, 1, 2, 3, 4, 5, 6};
  const std::vector<at::Tensor> packed = scores(*bf16.model, prompts, true, all);
  std::vector<std::vector<at::Tensor>> expected(packed.size()), rounded(packed.size());
  for (const Tokens& prompt : prompts) {
    const auto of_fp32 = scores(*fp32.model, {prompt}, false, {0}),
               of_bf16 = scores(*bf16.model, {prompt}, false, {0});
    for (size_t step = 0; step < packed.size(); step++) {
      expected[step].push_back(of_fp32[step]);
      rounded[step].push_back(of_bf16[step]);
    }
  }
  for (size_t step = 0; step < packed.size(); step++) {
    const at::Tensor reference = at::cat(expected[step]);
    EXPECT_LE(relative_error(packed[step], reference),
              1.5 * relative_error(at::cat(rounded[step]), reference));
  }
}

TEST_P(Prefill, NoPaddedTokenIsComputed) {
  const Golden golden(GetParam());
  Prompts prompts = uneven_prompts();
  // Behind 16 tokens Phi-3's frequencies change: what began before is computed again.
  prompts[4].push_back(5);
  const int64_t batch = 7, tokens = 7 + 1 + 29 + 2 + 17 + 29 + 40, padded = batch * 40;
  GenerationConfig config;
  config.max_new_tokens = 2;
  const auto rows = [&](const Prompts& inputs) {
    return rows_of_products([&] { generate(*golden.model, inputs, config, at::kCPU); });
  };
  std::set<int64_t> of_weights = rows({{5}});  // products of weights with weights (DoRA)
  of_weights.erase(1);
  const auto expected = [&](int64_t computed) {
    std::set<int64_t> all{batch, computed};
    all.insert(of_weights.begin(), of_weights.end());
    return all;
  };
  EXPECT_EQ(rows(prompts), expected(tokens));  // the default on the CPU
  config.packing = false;
  EXPECT_EQ(rows(prompts), expected(padded));
}

INSTANTIATE_TEST_SUITE_P(Families, Prefill, ::testing::ValuesIn(golden_names()),
                         [](const auto& param) { return param.param; });

TEST(PrefillOfQuantisedWeights, EachPromptGetsTheScoresThatItGetsAlone) {
  for (const char* name : {"qwen2", "t5_v1_1", "t5gemma2"}) {
    const auto model = load_model(golden_directory(name) / "model",
                                  {at::kCPU, at::kFloat, /*train_all=*/false, Quantisation{}});
    expect_scores_of_each_alone(*model, uneven_prompts(), true);
  }
}

TEST(PackedGeneration, GivesTheAnswersOfPaddedRowsWithBeamsAndSamples) {
  for (const char* name :
       {"t5_v1_0", "umt5", "qwen2", "gemma2", "gemma4", "gemma4_small_lora", "t5gemma", "t5gemma2"}) {
    const Golden golden(name);
    GenerationConfig beams, samples;
    beams.num_beams = 3;
    samples.do_sample = true;
    for (GenerationConfig config : {beams, samples}) {
      config.max_new_tokens = 10;
      config.num_return_sequences = 2;
      config.packing = true;
      const auto packed = generate(*golden.model, uneven_prompts(), config, at::kCPU);
      config.packing = false;
      EXPECT_EQ(packed, generate(*golden.model, uneven_prompts(), config, at::kCPU)) << name;
    }
  }
}

TEST(PackedGeneration, TakesNoMoreMemoryThanPaddedRows) {
  for (const char* name : {"t5_v1_1", "llama", "gemma2"}) {
    const Golden golden(name);
    const Prompts prompts = prompts_of_lengths({200, 30, 20, 10, 10, 3, 2, 1});
    const auto peak = [&](bool packing) {
      GenerationConfig config;
      config.max_new_tokens = 1;
      config.packing = packing;
      const CountsAllocations counts;
      CountingAllocator& allocator = CountingAllocator::instance();
      allocator.reset_peak();
      const int64_t before = allocator.in_use();
      generate(*golden.model, prompts, config, at::kCPU);
      return allocator.peak() - before;
    };
    EXPECT_LT(peak(true), peak(false)) << name;
  }
}

TEST(PackedGeneration, LeavesInputsOfOneLengthTogether) {
  const Golden golden("qwen2");
  GenerationConfig config;
  config.max_new_tokens = 1;
  config.packing = true;
  for (const Prompts& prompts : {prompts_of_lengths({5, 5, 5}), prompts_of_lengths({9})}) {
    const int64_t batch = std::ssize(prompts), tokens = batch * std::ssize(prompts[0]);
    EXPECT_EQ(rows_of_products([&] { generate(*golden.model, prompts, config, at::kCPU); }),
              (std::set<int64_t>{batch, tokens}));
  }
}

TEST(Generation, AnEmptyInputIsRefused) {
  const Golden golden("t5_v1_1");
  const std::string message = test::error_message<DataError>([&] {
    generate(*golden.model, {{5}, {}}, GenerationConfig(), at::kCPU);
  });
  EXPECT_NE(message.find("input 1"), std::string::npos) << message;
}

}  // namespace
}  // namespace trainer
