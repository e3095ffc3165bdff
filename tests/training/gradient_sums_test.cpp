// Sums over the ranks that begin while the last backward pass runs.
#include "training/gradient_sums.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "trainer/base/error.h"

#include "training/steps_of_ranks.h"

namespace trainer {
namespace {

// The weight of the first block whose gradient each backward pass computes among its last ones.
at::Tensor weight_of_first_block(Model& model) {
  at::Tensor found;
  for (const TrainedParameter& parameter : trained_parameters(model))
    if (!found.defined() && !parameter.embedding) found = parameter.value;
  return found;
}

// While it lives, a rank calls `act` in each of its backward passes, when the pass has come to the first
// block.
class AtFirstBlock {
 public:
  AtFirstBlock(Model& model, const std::function<void()>& act)
      : weight_(weight_of_first_block(model)),
        hook_(weight_.register_hook([act](const at::Tensor&) { act(); })) {}
  ~AtFirstBlock() { weight_.remove_hook(hook_); }
  AtFirstBlock(const AtFirstBlock&) = delete;
  AtFirstBlock& operator=(const AtFirstBlock&) = delete;

 private:
  at::Tensor weight_;
  unsigned hook_;
};

// Waits until this rank has given more than so many bytes to sums; returns whether it has.
bool gives_more_than(int64_t bytes, const Ranks& ranks) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (ranks.bytes_given() <= bytes && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return ranks.bytes_given() > bytes;
}

// Each rank makes one pass in a step, unless it runs out of memory.
Config one_pass(Shard shard) {
  Config config = config_of_ranks(shard);
  config.training.batch_size = 8;
  return config;
}

// A trained golden of one rank.
struct RankRun {
  RankRun(const GoldenRun& run, Config settings, const Ranks& ranks)
      : ranks(ranks),
        config(std::move(settings)),
        golden(golden_of(run, config, ranks)),
        trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks) {}

  StepResult step(int64_t number) { return trainer.step(batch_of_step(golden, number, ranks)); }

  const Ranks& ranks;
  const Config config;  // the trainer refers to it
  const Golden golden;
  Trainer trainer;
};

struct SumsCase {
  std::string label;
  GoldenRun run;
  Shard shard;
  std::function<void(Config&)> change = [](Config&) {};
};

std::ostream& operator<<(std::ostream& out, const SumsCase& c) { return out << c.label; }

GoldenRun in_bf16(const std::string& name) {
  GoldenRun run(name);
  run.dtype = at::kBFloat16;
  return run;
}

class EarlySums : public testing::TestWithParam<SumsCase> {
 protected:
  Config config() const {
    Config config = one_pass(GetParam().shard);
    GetParam().change(config);
    return config;
  }

 private:
  SmallPieces pieces_{100};
};

// The first step learns how gradients come.
TEST_P(EarlySums, BeginBeforeTheLastBackwardPassEnds) {
  std::atomic<int64_t> began{0};
  in_ranks(3, [&](const Ranks& ranks) {
    RankRun run(GetParam().run, config(), ranks);
    run.step(0);
    const int64_t before = ranks.bytes_given();
    const AtFirstBlock here(*run.golden.model, [&] { began += gives_more_than(before, ranks) ? 1 : 0; });
    run.step(1);
  });
  EXPECT_EQ(began, 3);
}

// A trainer that has just been made knows of no passes, and adds up after them.
TEST_P(EarlySums, HaveTheBitsOfLateOnes) {
  std::vector<After> early(2), late(2);
  in_ranks(2, [&](const Ranks& ranks) {
    RankRun run(GetParam().run, config(), ranks);
    const Golden again = golden_of(GetParam().run, run.config, ranks);
    const auto rank = static_cast<size_t>(ranks.rank());
    for (int64_t step = 0; step < 5; step++) {
      Trainer resumed(run.config, *again.model, at::kCPU, 10, make_optimizer, ranks);
      if (step > 0) resumed.restore_optimizer(run.trainer.optimizer_state(), "");
      resumed.set_steps_taken(step);
      late[rank].losses.push_back(resumed.step(batch_of_step(again, step, ranks)).loss);
      early[rank].losses.push_back(run.step(step).loss);
    }
    const auto keep = [](Model& model, Tensors& weights) {
      for (const TrainedParameter& parameter : trained_parameters(model))
        weights[parameter.name] = parameter.value.detach().clone();
    };
    keep(*run.golden.model, early[rank].weights);
    keep(*again.model, late[rank].weights);
  });
  for (size_t rank = 0; rank < 2; rank++) expect_same_bits(early[rank], late[rank]);
  expect_same_bits(early[0], early[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, EarlySums,
    testing::Values(SumsCase{"t5", "t5_v1_1", Shard::optimizer},
                    SumsCase{"t5_undivided", "t5_v1_1", Shard::none},
                    SumsCase{"qwen", "qwen2", Shard::optimizer}, SumsCase{"lora", "qwen2_lora", Shard::none},
                    SumsCase{"t5_lora", "t5_v1_1_lora", Shard::optimizer},
                    SumsCase{"bf16", in_bf16("qwen2"), Shard::none},
                    SumsCase{"fp32_sums", in_bf16("t5_v1_1"), Shard::optimizer,
                             [](Config& c) { c.optimizer.grad_dtype = StateDtype::fp32; }},
                    SumsCase{"recomputed", "t5_v1_1", Shard::none,
                             [](Config& c) { c.memory.gradient_checkpointing = true; }},
                    SumsCase{"packed", "qwen2", Shard::optimizer, [](Config& c) { c.data.packing = true; }}),
    [](const auto& param) { return param.param.label; });

class EarlySumsOfRanks : public testing::TestWithParam<std::tuple<std::string, int64_t, Shard>> {
  SmallPieces pieces_{100};
};

// With several passes in a step, and with steps in which some ranks have no sample.
TEST_P(EarlySumsOfRanks, DoTheUpdatesOfOne) {
  const auto& [name, count, shard] = GetParam();
  const Config config = config_of_ranks(shard);
  expect_updates_of_one(six_steps(name, config, Ranks::none()), on_ranks(count, name, config));
}

INSTANTIATE_TEST_SUITE_P(Runs, EarlySumsOfRanks,
                         testing::Combine(testing::Values("t5_v1_1", "qwen2", "qwen2_lora"),
                                          testing::Values(2, 3, 4),
                                          testing::Values(Shard::none, Shard::optimizer)));

class GivenSums : public testing::Test {
 protected:
  // All ranks take three steps; rank 1 calls `act` in the last pass of the second, after it has given a part
  // of its gradients. Returns losses and norms of each rank; none, where a step threw what `caught` gets.
  static std::vector<std::vector<double>> steps_in_which(
      const GoldenRun& of, int64_t count, const Config& config, const std::function<void()>& act,
      const std::function<void(const Error&)>& caught = {}) {
    std::vector<std::vector<double>> all(static_cast<size_t>(count));
    in_ranks(count, [&](const Ranks& ranks) {
      RankRun run(of, config, ranks);
      std::vector<double> own;
      take_step(run, 0, own);
      const int64_t before = ranks.bytes_given();
      {
        std::optional<AtFirstBlock> here;
        if (ranks.rank() == 1) {
          here.emplace(*run.golden.model, [&, before] {
            EXPECT_TRUE(gives_more_than(before, ranks));
            act();
          });
        }
        try {
          take_step(run, 1, own);
        } catch (const Error& error) {
          if (!caught) throw;
          return caught(error);
        }
      }
      take_step(run, 2, own);
      all[static_cast<size_t>(ranks.rank())] = own;
    });
    return all;
  }

  static void take_step(RankRun& run, int64_t number, std::vector<double>& results) {
    const StepResult result = run.step(number);
    results.insert(results.end(), {result.loss, result.grad_norm});
  }

 private:
  SmallPieces pieces_{100};
};

void run_out_of_memory() { TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for a test"); }

// What was given is not taken back, and the rest is that of the repeated passes.
TEST_F(GivenSums, StayAsTheyAreWhenTheirRankRunsOutOfMemory) {
  for (const char* name : {"t5_v1_1", "qwen2", "qwen2_lora"}) {
    for (const Shard shard : {Shard::none, Shard::optimizer}) {
      const Config config = one_pass(shard);
      std::vector<double> one;
      {
        RankRun run(name, config, Ranks::none());
        for (int64_t step = 0; step < 3; step++) take_step(run, step, one);
      }
      for (const int64_t failures : {1, 2}) {
        int64_t left = failures;
        const auto many = steps_in_which(name, 3, config, [&] {
          if (left-- > 0) run_out_of_memory();
        });
        EXPECT_LT(left, 0) << "the passes were repeated";
        for (const std::vector<double>& rank : many) {
          EXPECT_EQ(rank, many.front());
          ASSERT_EQ(rank.size(), one.size());
          for (size_t i = 0; i < one.size(); i++)
            EXPECT_NEAR(rank[i], one[i], (i % 2 == 0 ? 1e-6 : 2e-6) * one[i])
                << name << (i % 2 == 0 ? ", loss " : ", norm ") << i / 2;
        }
      }
    }
  }
}

TEST_F(GivenSums, OfARankThatGivesUpEndAll) {
  std::atomic<int64_t> told{0};
  steps_in_which("qwen2", 3, one_pass(Shard::optimizer), run_out_of_memory, [&](const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::out_of_memory);
    EXPECT_EQ(std::string(error.what()).substr(0, 31), "rank 1: out of memory (backward");
    told++;
  });
  EXPECT_EQ(told, 3);
}

TEST_F(GivenSums, OfARankWithAnErrorEndAll) {
  std::atomic<int64_t> told{0};
  const auto fail = [] { throw DataError("bad weather"); };
  steps_in_which("t5_v1_1", 3, one_pass(Shard::none), fail, [&](const Error& error) {
    EXPECT_EQ(std::string(error.what()), "rank 1: bad weather");
    told++;
  });
  EXPECT_EQ(told, 3);
}

TEST_F(GivenSums, AreLostWithARankThatIsGone) {
  std::atomic<int64_t> lost{0};
  in_ranks(3, [&](const Ranks& ranks) {
    RankRun run("qwen2", one_pass(Shard::optimizer), ranks);
    run.step(0);
    if (ranks.rank() == 2) return ranks.notify_end({2, 9, "gone"});
    try {
      run.step(1);
    } catch (const LostRank&) {
      lost++;
      ranks.notify_end({ranks.rank(), 8, "lost"});
    }
  });
  EXPECT_EQ(lost, 2);
}

// Whichever rank an allocation fails on, it alone repeats its part.
TEST_F(GivenSums, SurviveAFailureOfAnyAllocation) {
  install_host_allocator();
  const Config config = one_pass(Shard::none);
  const After one = six_steps("qwen2", config, Ranks::none());
  int64_t recovered = 0;
  for (int64_t n = 2; n < 400; n += 19) {
    const std::vector<After> two = on_ranks(2, "qwen2", config, n);
    expect_same_bits(two.at(0), two.at(1));
    EXPECT_LE(distance(one.weights, two.at(0).weights), 1e-5) << n;
    recovered += two.at(0).retries + two.at(1).retries > 0;
  }
  EXPECT_GE(recovered, 5);
}

}  // namespace
}  // namespace trainer
