// Batches come in order and whole, whatever the number of threads.
#include "trainer/data/step_loader.h"

#include <atomic>
#include <fstream>
#include <stdexcept>

#include "trainer/data/batching.h"

#include "data/fixture.h"
#include "support/no_threads.h"

namespace trainer {
namespace {

class StepLoaderTest : public DataTest {
 protected:
  // Rows whose input is "10", "11 11", "12 12 12", ...
  static std::string rows(int64_t count) {
    std::string content;
    for (int64_t i = 0; i < count; i++) {
      content += "{\"input\": \"";
      for (int64_t j = 0; j <= i; j++) content += concat(j > 0 ? " " : "", 10 + i);
      content += "\", \"target\": \"one\"}\n";
    }
    return content;
  }
  // Batches of `size` rows, from all of the data in order.
  static StepLoader::NextIndices batches_of(const Dataset& dataset, int64_t size) {
    return [size, left = dataset.size(), next = int64_t{0}]() mutable {
      std::vector<int64_t> indices;
      for (; left > 0 && static_cast<int64_t>(indices.size()) < size; left--) indices.push_back(next++);
      return indices;
    };
  }
};

TEST_F(StepLoaderTest, GivesTheSameBatchesWithAnyNumberOfThreads) {
  const Dataset set = data(rows(100));
  for (const StepLoaderOptions options : {StepLoaderOptions{1, 1}, {2, 2}, {5, 1}, {3, 50}}) {
    StepLoader loader(set, batches_of(set, 30), options);
    int64_t next = 0;
    for (const int64_t size : {30, 30, 30, 10}) {
      const EffectiveBatch batch = loader.next();
      ASSERT_EQ(static_cast<int64_t>(batch.samples.size()), size);
      int64_t tokens = 0;
      for (const Sample& sample : batch.samples) {
        Ids expected(static_cast<size_t>(next + 1), static_cast<int32_t>(10 + next));
        expected.push_back(1);
        EXPECT_EQ(sample.input_ids, expected);
        tokens += next + 2 + 2;  // one word and the end token in the target
        next++;
      }
      EXPECT_EQ(batch.tokens, tokens);
      EXPECT_EQ(batch.supervised_tokens, 2 * size);
    }
    EXPECT_THROW(loader.next(), std::logic_error);
  }
}

TEST_F(StepLoaderTest, HoldsNoMoreBatchesThanConfigured) {
  const Dataset set = data(rows(100));
  std::atomic<int64_t> begun = 0;
  StepLoader loader(set,
                    [&, batches = batches_of(set, 10)]() mutable {
                      begun++;
                      return batches();
                    },
                    {3, 2});
  for (int64_t taken = 1; taken <= 8; taken++) {
    loader.next();
    EXPECT_LE(begun, taken + 2);
  }
}

TEST_F(StepLoaderTest, ABadRowFailsTheStepThatNeedsItAndTheFirstOneCounts) {
  const std::string path = write("data.jsonl", rows(90));
  const Dataset set = open(path);
  // Damage the file without the data set's notice: it checks the file's time, which is restored.
  const auto time = std::filesystem::last_write_time(path);
  std::string broken = rows(90);
  for (const int64_t row : {40, 55}) broken[rows(row).size()] = '#';
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << broken;
  std::filesystem::last_write_time(path, time);
  StepLoader loader(set, batches_of(set, 30), {3, 3});
  EXPECT_EQ(loader.next().samples.size(), 30u);
  EXPECT_TRUE(starts(error_of([&] { loader.next(); }), "data.jsonl:41: "));
  EXPECT_EQ(loader.next().samples.size(), 30u);
}

TEST_F(StepLoaderTest, AnErrorWhileChoosingSamplesReachesTheStep) {
  const Dataset set = data(rows(3));
  StepLoader loader(set, []() -> std::vector<int64_t> { throw DataError("no order"); }, {2, 2});
  EXPECT_EQ(error_of([&] { loader.next(); }), "no order");
}

TEST_F(StepLoaderTest, EndsWithUnusedBatches) {
  const Dataset set = data(rows(100));
  for (int round = 0; round < 20; round++) {
    StepLoader loader(set, batches_of(set, 7), {4, 5});
    if (round % 2 == 1) loader.next();
  }
}

TEST_F(StepLoaderTest, WithoutThreadsItSaysSoAndEnds) {
  const Dataset set = data(rows(10));
  EXPECT_EXIT(
      {
        test::give_no_threads();
        try {
          StepLoader loader(set, batches_of(set, 3), StepLoaderOptions{4, 1});
        } catch (const ConfigError& error) {
          ::_exit(std::string(error.what()).find("training.num_workers") != std::string::npos ? 0 : 2);
        }
        ::_exit(1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace trainer
