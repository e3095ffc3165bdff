// Rows that are split: their ids are stored, so that a row is not tokenized again for each of its pieces.
#include <atomic>
#include <fstream>

#include "data/fixture.h"
#include "support/each_file_fault.h"

namespace trainer {
namespace {

class CountingWords : public WordTokenizer {
 public:
  using WordTokenizer::WordTokenizer;
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    calls++;
    return WordTokenizer::encode(text, add_special_tokens);
  }
  mutable std::atomic<int> calls = 0;
};

class Pieces : public DataTest {
 protected:
  Pieces() {
    config_.data.long_samples = LongSamples::split;
    config_.data.max_length = 5;
    write_rows(30);
  }

  void write_rows(int count) {
    std::string content;
    for (int row = 0; row < count; row++) {
      content += "{\"text\": \"";
      for (int word = 0; word < 1 + row * 7 % 23; word++) content += concat(10 + row * 30 + word, " ");
      content += "\"}\n";
    }
    path_ = write("data.jsonl", content);
  }

  std::vector<Ids> samples(const std::filesystem::path& cache = {}) {
    config_.data.cache = cache.string();
    const Dataset data = Dataset::open({path_}, config_, tokenizer_, false);
    tokenizer_.calls = 0;
    std::vector<Ids> all;
    for (int64_t i = 0; i < data.size(); i++) {
      const Sample sample = data.sample(i);
      EXPECT_EQ(sample.labels, sample.input_ids);
      EXPECT_EQ(data.lengths(i).input_tokens, std::ssize(sample.input_ids));
      all.push_back(sample.input_ids);
    }
    single_ = 0;
    for (int64_t i = 0; i < data.size(); i++)
      single_ += data.begins_row(i) && (i + 1 == data.size() || data.begins_row(i + 1));
    return all;
  }
  std::filesystem::path kept(const char* extension) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache/index")) {
      if (entry.path().extension() == extension) return entry.path();
    }
    return {};
  }

  std::string path_;
  CountingWords tokenizer_{WordTokenizer::Specials::bos_before};
  int single_ = 0;  // rows with one sample
};

TEST_F(Pieces, MakeUpTheirRow) {
  const std::vector<Ids> all = samples();
  EXPECT_EQ(all[1], (Ids{3, 40, 41, 42, 43}));  // the second row's: 8 words, <s> before and </s> after
  EXPECT_EQ(all[2], (Ids{43, 44, 45, 46, 47}));
  EXPECT_EQ(all[3], (Ids{47, 1}));
}

TEST_F(Pieces, AreNotTokenizedAgain) {
  const std::vector<Ids> in_memory = samples();
  EXPECT_EQ(tokenizer_.calls, single_);
  const std::vector<Ids> made = samples(folder_ / "cache");
  EXPECT_EQ(tokenizer_.calls, single_);
  const std::vector<Ids> opened = samples(folder_ / "cache");
  EXPECT_EQ(tokenizer_.calls, single_);
  EXPECT_GT(single_, 0);
  EXPECT_EQ(made, in_memory);
  EXPECT_EQ(opened, in_memory);
  config_.training.num_workers = 3;
  std::filesystem::remove_all(folder_ / "cache");
  EXPECT_EQ(samples(folder_ / "cache"), in_memory);
}

TEST_F(Pieces, ThatAreDamagedOrGoneAreRebuilt) {
  const std::vector<Ids> right = samples(folder_ / "cache");
  const auto size = std::filesystem::file_size(kept(".pieces"));
  for (const size_t offset : {size_t{0}, size_t{100}, size / 2, size - 60, size - 30, size - 1}) {
    std::fstream file(kept(".pieces"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 0x15);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
    file.close();
    EXPECT_EQ(samples(folder_ / "cache"), right) << offset;
    EXPECT_GT(tokenizer_.calls, single_) << offset;
  }
  for (const size_t left : {size - 1, size / 2, size_t{0}}) {
    std::filesystem::resize_file(kept(".pieces"), left);
    EXPECT_EQ(samples(folder_ / "cache"), right) << left;
  }
  std::filesystem::remove(kept(".pieces"));
  EXPECT_EQ(samples(folder_ / "cache"), right);
}

TEST_F(Pieces, AndTheRestAreRightWhicheverWriteFails) {
  write_rows(4);
  const std::vector<Ids> right = samples();
  const auto cache = folder_ / "cache";
  const int64_t operations = test::operations_of([&] { samples(cache); });
  ASSERT_GT(operations, 15);
  for (int64_t operation = 1; operation <= operations; operation++) {
    const FileFault failures[] = {{operation, FaultKind::error, ENOSPC},
                                  {operation, FaultKind::error, EIO, /*lasting=*/true},
                                  {operation, FaultKind::cut}};
    for (const FileFault& fault : failures) {
      std::filesystem::remove_all(cache);
      {
        const test::FileFaultScope scope(fault);
        EXPECT_EQ(samples(cache), right) << test::name_of(fault);
      }
      EXPECT_EQ(samples(cache), right) << test::name_of(fault);
    }
    std::filesystem::remove_all(cache);
    test::ends_by({operation, FaultKind::crash}, [&] { samples(cache); });
    EXPECT_EQ(samples(cache), right) << operation;
  }
}

}  // namespace
}  // namespace trainer
