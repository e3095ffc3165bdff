// More data files than can be mapped at once.
#include <algorithm>
#include <fstream>
#include <string>

#include "data/fixture.h"
#include "data/pooled_file.h"

namespace trainer {
namespace {

constexpr int kFiles = static_cast<int>(PooledFile::kMapped) + 100;

class ManyFiles : public DataTest {
 protected:
  ManyFiles() {
    std::filesystem::create_directories(folder_ / "data");
    for (int i = 0; i < kFiles; i++)
      write(concat("data/", 10'000 + i, ".jsonl"),
            concat("{\"input\": \"", 10 + i, "\", \"target\": \"a\"}\n"));
  }

  // Returns how many mappings of this process have a file in `folder`.
  int64_t mapped(const std::string& folder) const {
    std::ifstream in("/proc/self/maps");
    int64_t count = 0;
    for (std::string line; std::getline(in, line);)
      count += line.find((folder_ / folder).string() + "/") != std::string::npos ? 1 : 0;
    return count;
  }

  void expect_all_samples(const Dataset& data) const {
    ASSERT_EQ(data.size(), kFiles);
    for (const int64_t step : {int64_t{1}, int64_t{kFiles - 1}}) {  // kFiles - 1: backwards
      for (int64_t n = 0, i = 0; n < kFiles; n++, i = (i + step) % kFiles)
        ASSERT_EQ(data.sample(i).input_ids.front(), 10 + i);
    }
  }
};

TEST_F(ManyFiles, AreMappedWhileTheyAreUsed) {
  const Dataset data = open((folder_ / "data").string());
  expect_all_samples(data);
  EXPECT_LE(mapped("data"), static_cast<int64_t>(PooledFile::kMapped));
}

TEST_F(ManyFiles, OneThatChangesIsNoticedWhenItIsMappedAgain) {
  const Dataset data = open((folder_ / "data").string());
  data.sample(kFiles - 1);
  write("data/10000.jsonl", "{\"input\": \"10\", \"target\": \"a b c\"}\n");
  EXPECT_THROW(data.sample(0), DataError);
}

TEST_F(ManyFiles, OfWhichEveryRowIsSplit) {
  for (int i = 0; i < kFiles; i++)
    write(concat("data/", 10'000 + i, ".jsonl"), concat("{\"text\": \"", 10 + i, " a b c d e\"}\n"));
  config_.data.kind = DataKind::text;
  config_.data.long_samples = LongSamples::split;
  config_.data.max_length = 4;
  config_.data.cache = (folder_ / "cache").string();
  const Dataset data = open((folder_ / "data").string(), /*encoder_decoder=*/false);
  for (int64_t i = 0; i < kFiles; i++) {
    const int64_t first = i * data.size() / kFiles;
    ASSERT_TRUE(data.begins_row(first));
    const std::vector<int32_t> ids = data.sample(first).input_ids;
    ASSERT_TRUE(std::ranges::find(ids, 10 + i) != ids.end());
  }
  EXPECT_LE(mapped("data") + mapped("cache/index"), static_cast<int64_t>(PooledFile::kMapped) + kFiles);
}

}  // namespace
}  // namespace trainer
