// The index is stored and used again; data that changes is noticed.
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "data/fixture.h"

namespace trainer {
namespace {

// Counts the calls.
class CountingTokenizer : public WordTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    if (text != "a") calls++;  // which every start asks, to learn what the tokenizer can spell
    return WordTokenizer::encode(text, add_special_tokens);
  }
  std::string fingerprint() const override { return name; }
  mutable std::atomic<int> calls = 0;
  std::string name = "counting";
};

class Index : public DataTest {
 protected:
  Index() {
    config_.data.cache = (folder_ / "cache").string();
    for (int i = 10; i < 400; i++)
      content_ += concat("{\"input\": \"", i, " é one\", \"target\": \"", i + 1, " two\"}\n");
    path_ = write("data.jsonl", content_);
  }

  // Opens the data and returns how often the tokenizer was called.
  int calls(const std::string& path = "") {
    tokenizer_.calls = 0;
    data_.emplace(Dataset::open({path.empty() ? path_ : path}, config_, tokenizer_, true));
    return tokenizer_.calls;
  }
  std::filesystem::path kept() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache/index"))
      return entry.path();
    return {};
  }
  void change(size_t offset, char to) const {
    std::fstream file(kept(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(to);
  }

  std::string content_, path_;
  CountingTokenizer tokenizer_;
  std::optional<Dataset> data_;
};

TEST_F(Index, IsBuiltOnceAndReadsBackTheSame) {
  EXPECT_GE(calls(), 2 * 390);
  const std::vector<std::string> lines = data_->report().lines();
  const Sample sample = data_->sample(389);
  const Dataset::Lengths lengths = data_->lengths(389);
  const uint64_t content = data_->content(389);
  EXPECT_EQ(calls(), 0);
  EXPECT_EQ(data_->report().lines(), lines);
  EXPECT_TRUE(has(join(lines, "\n"), "é"));
  EXPECT_EQ(data_->size(), 390);
  EXPECT_EQ(data_->sample(389).input_ids, sample.input_ids);
  EXPECT_EQ(data_->lengths(389).input_tokens, lengths.input_tokens);
  EXPECT_EQ(lengths.input_tokens, 4);
  EXPECT_EQ(lengths.target_tokens, 3);
  EXPECT_EQ(data_->content(389), content);
  EXPECT_TRUE(ends(data_->origin(389), "data.jsonl:390"));
}

// Conversations, with a template that writes the day of the month.
class DatedIndex : public Index {
 protected:
  DatedIndex() {
    path_ = write("chat.jsonl", R"({"messages": [{"role": "user", "content": "one"}, )"
                                R"({"role": "assistant", "content": "two"}]})"
                                "\n");
    use(R"({{ strftime_now("%d") }} )");
  }
  void use(const std::string& begin) {
    config_.data.chat_template = write(
        "dated.jinja", begin +
                           "{% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' </s> ' }}{% endfor %}"
                           "{% if add_generation_prompt %}a{% endif %}");
  }
  // Opens the data on this day and returns how often the tokenizer was called.
  int calls_on(const std::string& day) {
    config_.data.template_date = day;
    tokenizer_.calls = 0;
    data_.emplace(Dataset::open({path_}, config_, tokenizer_, /*encoder_decoder=*/false));
    return tokenizer_.calls;
  }
};

TEST_F(DatedIndex, IsThatOfItsDayIfTheTemplateWritesTheDate) {
  const int with_rows = calls_on("2026-05-31");
  EXPECT_EQ(data_->sample(0).input_ids, (Ids{31, 120, 4, 1, 100, 5, 1}));
  const int without = calls_on("2026-05-31");  // what ends an answer is looked at each time
  EXPECT_LT(without, with_rows);
  EXPECT_EQ(calls_on("2026-09-11"), with_rows);
  EXPECT_EQ(data_->sample(0).input_ids, (Ids{11, 120, 4, 1, 100, 5, 1}));
  EXPECT_EQ(calls_on("2026-05-31"), without) << "both are kept";
  EXPECT_EQ(data_->report().template_date, "2026-05-31");
  EXPECT_TRUE(has(join(data_->report().lines(), "\n"), "the date in them: 2026-05-31"));
  RunDataReport report;
  report.train = data_->report();
  EXPECT_TRUE(has(to_json_text(report), R"("template_date": "2026-05-31")"));
  EXPECT_TRUE(has(to_text(report, {}), "2026-05-31, which the chat template writes (data.template_date)"));
}

TEST_F(DatedIndex, IsThatOfEveryDayIfItDoesNot) {
  use("10 ");
  const int with_rows = calls_on("2026-05-31");
  EXPECT_LT(calls_on("2026-09-11"), with_rows);
  EXPECT_EQ(data_->report().template_date, "");
  EXPECT_FALSE(has(join(data_->report().lines(), "\n"), "the date in them"));
}

TEST_F(DatedIndex, TellsTheTemplateNoTimeOfDay) {
  use(R"({{ 11 if strftime_now("%H:%M:%S") == "00:00:00" else 12 }} )");
  calls_on("");
  EXPECT_EQ(data_->sample(0).input_ids.front(), 11);
}

TEST_F(Index, IsTheSameForAnyNumberOfWorkers) {
  calls();
  std::ifstream first(kept(), std::ios::binary);
  const std::string one{std::istreambuf_iterator<char>(first), {}};
  std::filesystem::remove(kept());
  config_.training.num_workers = 4;
  EXPECT_GT(calls(), 0);
  std::ifstream second(kept(), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(second), {}), one);
}

// At the end of a file, more workers may ask for a batch than batches may be ahead of the rest.
TEST_F(Index, EndsWithMoreWorkersThanBatchesMayBeAhead) {
  config_.training.num_workers = 200;
  calls();
  EXPECT_EQ(data_->size(), 390);
}

// Holds up the first row until the other workers have to wait.
class HeldUpTokenizer : public CountingTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    if (text == "10 first") {
      for (int before = -1; before != calls; std::this_thread::sleep_for(std::chrono::milliseconds(200)))
        before = calls;
      calls_ahead = int{calls};
    }
    return CountingTokenizer::encode(text, add_special_tokens);
  }
  mutable std::atomic<int> calls_ahead = 0;
};

TEST_F(Index, DoesNotPileUpBehindAStalledWorker) {
  std::string rows = "{\"input\": \"10 first\", \"target\": \"one\"}\n";
  constexpr int kRows = 60'000;
  for (int i = 0; i < kRows; i++) rows += "{\"input\": \"11\", \"target\": \"one\"}\n";
  write("data.jsonl", rows);
  config_.training.num_workers = 2;
  const HeldUpTokenizer tokenizer;
  EXPECT_EQ(Dataset::open({path_}, config_, tokenizer, true).size(), kRows + 1);
  EXPECT_GT(tokenizer.calls_ahead, 1000);
  EXPECT_LT(tokenizer.calls_ahead, kRows) << "two calls for each row";
}

TEST_F(Index, IsRebuiltWhenItsInputsChange) {
  calls();
  const auto expect_new = [&](const char* what) {
    EXPECT_GT(calls(), 0) << what;
    EXPECT_EQ(calls(), 0) << what;
  };
  config_.data.max_source_length = 3;
  expect_new("a length");
  config_.data.input = "Say: {input}";
  expect_new("a template");
  tokenizer_.name = "another";
  expect_new("the tokenizer");
  config_.data.max_source_length = 9;
  expect_new("another length");
  config_.data.long_samples = LongSamples::drop;
  expect_new("a policy");
  write("data.jsonl", content_ + "{\"input\": \"one\", \"target\": \"two\"}\n");
  expect_new("the file");
  // Neither the folder of the file nor data.shuffle matters.
  std::filesystem::rename(path_, folder_ / "moved.jsonl");
  config_.data.shuffle = false;
  EXPECT_EQ(calls((folder_ / "moved.jsonl").string()), 0);
}

TEST_F(Index, ThatIsDamagedIsRebuilt) {
  calls();
  const auto size = std::filesystem::file_size(kept());
  for (const size_t offset : {size_t{0}, size_t{17}, size_t{40}, size_t{32 * 200}, size - 100, size - 1}) {
    change(offset, '\x7f');
    EXPECT_GT(calls(), 0) << offset;
    EXPECT_EQ(data_->sample(389).input_ids.front(), 399);
    EXPECT_EQ(calls(), 0) << offset;
  }
  for (const size_t left : {size - 1, size / 2, size_t{20}, size_t{0}}) {
    std::filesystem::resize_file(kept(), left);
    EXPECT_GT(calls(), 0) << left;
    EXPECT_EQ(calls(), 0) << left;
  }
}

TEST_F(Index, StaysInMemoryIfTheCacheCannotBeWritten) {
  config_.data.cache = write("file", "");
  EXPECT_GT(calls(), 0);
  EXPECT_GT(calls(), 0);
  EXPECT_EQ(data_->sample(389).input_ids.front(), 399);
}

TEST_F(Index, OfATokenizerWithoutFingerprintIsNotKept) {
  tokenizer_.name = "";
  calls();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache/index"));
}

TEST_F(Index, OfDataWithBadRowsIsNotKeptIfTheyAreErrors) {
  write("data.jsonl", content_ + "{}\n");
  EXPECT_TRUE(starts(error_of([&] { calls(); }), "data.jsonl:391: "));
  EXPECT_TRUE(starts(error_of([&] { calls(); }), "data.jsonl:391: "));
  config_.data.bad_rows = BadRows::skip;
  EXPECT_GT(calls(), 0);
  EXPECT_EQ(calls(), 0);
  EXPECT_EQ(data_->report().malformed.count, 1);
}

// ---- data that changes while it is read

TEST_F(Index, AFileThatChangesWhileItIsReadIsNoticed) {
  const std::vector<std::function<void()>> changes{
      [&] { std::ofstream(path_, std::ios::app) << "\n"; }, [&] { std::filesystem::resize_file(path_, 100); },
      [&] { std::filesystem::remove(path_); },
      [&] {
        write("other.jsonl", content_);
        std::filesystem::rename(folder_ / "other.jsonl", path_);
      },
      [&] {
        std::filesystem::last_write_time(
            path_, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(9));
      }};
  for (size_t i = 0; i < changes.size(); i++) {
    write("data.jsonl", content_);
    calls();
    data_->sample(0);
    changes[i]();
    for (const int64_t index : {0, 389}) {
      EXPECT_TRUE(starts(error_of([&] { data_->sample(index); }), "data.jsonl: ")) << i;
      EXPECT_TRUE(starts(error_of([&] { data_->texts(index); }), "data.jsonl: ")) << i;
    }
  }
}

TEST_F(Index, AFileThatShrinksEndsTheRunWithItsName) {
  const auto cut_and_read = [&] {
    const auto file = MappedFile::open(path_);
    std::filesystem::resize_file(path_, 10);
    volatile char last = file->text().back();
    static_cast<void>(last);
  };
  EXPECT_EXIT(cut_and_read(), testing::ExitedWithCode(4), "data.jsonl: was cut short");
}

}  // namespace
}  // namespace trainer
