#include "data/build_index.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>
#include <xxhash.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/progress.h"
#include "base/random.h"
#include "base/threads.h"
#include "data/report_fields.h"

namespace trainer {
namespace {

// Returns how many bytes of the file will be read.
int64_t bytes_to_read(const RowFile& file, const IndexOptions& options) {
  const uint64_t all = file.bytes();
  return static_cast<int64_t>(options.max_bytes ? std::min<uint64_t>(*options.max_bytes, all) : all);
}

// Rows that a worker takes at once, and the samples it makes from them.
struct Batch {
  int64_t number = 0;
  std::vector<RowSpan> rows;
  struct Found {
    IndexedSample entry;
    std::vector<int32_t> ids;  // tokens of a part of a row that is learned as it is
  };
  std::vector<Found> samples;
  std::vector<BadRow> bad;
  int64_t bad_rows = 0, rows_taken = 0;
};

// Returns whether the ids say all of the sample.
bool all_learned(const Sample& sample) { return sample.weights.empty() && sample.labels == sample.input_ids; }

class Builder {
 public:
  Builder(const RowFile& file, const RowEncoder& encoder, const Survey& empty, const IndexOptions& options)
      : file_(file),
        encoder_(encoder),
        empty_(empty),
        options_(options),
        scanner_(file),
        progress_("reading " + file.shown().string(), bytes_to_read(file, options), ProgressUnit::bytes),
        index_(options.path.empty() ? RowIndex() : RowIndex(options.path)) {}

  RowIndex build() {
    // The first N samples of a file are known only after all rows before them: one worker, row after row.
    const int64_t workers = options_.choice.max_samples ? 1 : std::max<int64_t>(options_.num_workers, 1);
    std::vector<Survey> surveys(static_cast<size_t>(workers), empty_);
    {
      std::vector<std::jthread> threads;
      const int64_t started =
          start_threads(threads, workers - 1, [&](int64_t i) { work(surveys[static_cast<size_t>(i) + 1]); });
      if (started < workers - 1) warn_of_fewer_threads("training.num_workers", started + 1, workers);
      work(surveys.front());
    }
    if (failure_) std::rethrow_exception(failure_);
    for (size_t i = 1; i < surveys.size(); i++) surveys.front().merge(surveys[i]);
    DataReport counts = surveys.front().counts();
    number_lines(counts);
    index_.summary().counts = stored_counts(counts);
    index_.shrink();
    return std::move(index_);
  }

 private:
  void work(Survey& survey) {
    try {
      RowParser parser;
      Batch batch;
      while (take(batch)) {
        for (const RowSpan row : batch.rows) look_at(row, parser, batch, survey);
        commit(batch);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      end();
    }
  }

  bool take(Batch& batch) {
    constexpr size_t kRows = 256;
    constexpr uint64_t kBytes = 1 << 20;
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return ended_ || next_batch_ - committed_ < kAhead; });
    batch = {};
    batch.number = next_batch_;
    uint64_t bytes = 0;
    RowSpan row{};
    while (!ended_ && batch.rows.size() < kRows && bytes < kBytes) {
      if (options_.max_bytes && taken_bytes_ >= *options_.max_bytes) break;
      if (!scanner_.next(row)) break;
      batch.rows.push_back(row);
      bytes += row.length;
      taken_bytes_ += row.length;
    }
    // At the end of the file, do not take a number: a batch that is never committed would block the other
    // workers.
    if (batch.rows.empty()) return false;
    next_batch_++;
    progress_.set(static_cast<int64_t>(batch.rows.back().offset));
    return true;
  }

  void look_at(RowSpan row, RowParser& parser, Batch& batch, Survey& survey) {
    if (is_full(batch)) return;
    try {
      file_.parse(parser, row);
      const ReadRow read = encoder_.read(parser);
      const uint64_t content = hash_of(encoder_.content(read));
      if (!options_.choice.takes(content)) return;
      std::vector<EncodedSample> samples = encode(read, row);
      if (const auto most = options_.choice.max_samples) {
        const int64_t room = *most - index_.size() - static_cast<int64_t>(batch.samples.size());
        samples.resize(std::min(samples.size(), static_cast<size_t>(room)));
      }
      batch.rows_taken++;
      const uint64_t question = hash_of(encoder_.question(read));
      survey.add_marks(row.offset, read.unused_marks);
      survey.add(
          row.offset, samples, [&] { return encoder_.texts(read); }, [&] { return encoder_.learned(read); });
      std::erase_if(samples, [](const EncodedSample& sample) { return sample.dropped; });
      for (size_t piece = 0; piece < samples.size(); piece++) {
        EncodedSample& sample = samples[piece];
        const IndexedSample entry{row.offset,
                                  content,
                                  question,
                                  static_cast<uint32_t>(row.length),
                                  static_cast<uint32_t>(piece),
                                  static_cast<uint32_t>(sample.input_tokens),
                                  static_cast<uint32_t>(sample.target_tokens)};
        std::vector<int32_t> ids;
        if (samples.size() > 1 && !sample.kept.empty()) {
          ids = std::move(sample.kept);
        } else if (encoder_.sides() == 1 && samples.size() > 1 && all_learned(sample.sample)) {
          ids = std::move(sample.sample.input_ids);
        }
        batch.samples.push_back({entry, std::move(ids)});
      }
    } catch (const DataError& e) {
      if (options_.choice.part == RowChoice::Part::held_out) return;  // it is counted with the kept rows
      batch.rows_taken++;
      batch.bad_rows++;
      batch.bad.push_back({row.offset, row.length, 0, e.what()});
    } catch (const std::bad_alloc&) {
      throw of_family(
          ErrorCode::oom_host,
          OutOfMemoryError(concat(file_.place(row.offset),
                                  ": out of memory on the host while this row was read and tokenized (",
                                  bytes_string(static_cast<int64_t>(row.length)), ")")));
    }
  }

  // Errors in the template end the run; the message names the row.
  std::vector<EncodedSample> encode(const ReadRow& read, RowSpan row) const {
    try {
      return encoder_.encode(read);
    } catch (const FormatError& error) {
      FormatError placed(concat(error.what(), " (at the row ", file_.place(row.offset), ")"));
      placed.set_family(error.family().value_or(ErrorCode::chat_template));
      throw placed;
    }
  }

  void add_to_index(const Batch& batch) {
    try {
      for (const Batch::Found& sample : batch.samples) index_.add(sample.entry, sample.ids);
    } catch (const std::bad_alloc&) {
      throw of_family(
          ErrorCode::oom_host,
          OutOfMemoryError(concat(file_.shown().string(), ": out of memory on the host: the index has ",
                                  grouped(index_.size()), " samples and takes 40 bytes a sample; read ",
                                  "fewer of them (data.max_samples), or free memory")));
    }
  }

  bool is_full(const Batch& batch) const {
    const auto most = options_.choice.max_samples;
    return most && index_.size() + static_cast<int64_t>(batch.samples.size()) >= *most;
  }

  // Commits the batches in file order, whichever worker finishes first.
  void commit(Batch& batch) {
    batch.rows = {};
    const std::lock_guard lock(mutex_);
    done_.emplace(batch.number, std::move(batch));
    for (auto first = done_.begin(); first != done_.end() && first->first == committed_;
         first = done_.begin()) {
      const Batch& next = first->second;
      add_to_index(next);
      IndexSummary& summary = index_.summary();
      summary.rows += next.rows_taken;
      summary.bad_rows += next.bad_rows;
      for (const BadRow& bad : next.bad) {
        if (static_cast<int64_t>(summary.problems.size()) < IndexSummary::kProblems)
          summary.problems.push_back(bad);
      }
      committed_++;
      done_.erase(first);
    }
    room_.notify_all();
    if (is_full({})) end();
  }

  void end() {
    ended_ = true;
    room_.notify_all();
  }

  // Counts lines only when there are rows to report.
  void number_lines(DataReport& counts) {
    std::vector<std::pair<uint64_t, int64_t*>> rows;
    for (BadRow& bad : index_.summary().problems) rows.emplace_back(bad.offset, &bad.line);
    for (NamedRow* row : counts.named_rows()) rows.emplace_back(row->offset, &row->line);
    std::ranges::sort(rows);
    uint64_t counted = 0;
    int64_t line = 1;
    const std::shared_ptr<const MappedFile> content = file_.map();
    for (const auto& [offset, number] : rows) {
      line += std::ranges::count(content->text().substr(counted, offset - counted), '\n');
      counted = offset;
      *number = line;
    }
  }

  const RowFile& file_;
  const RowEncoder& encoder_;
  const Survey& empty_;
  const IndexOptions options_;

  // The most batches that finish before their turn: while one worker is stalled, the others must not pile up
  // the whole file.
  static constexpr int64_t kAhead = 64;

  std::mutex mutex_;  // guards everything below
  std::condition_variable room_;
  RowScanner scanner_;
  Progress progress_;
  RowIndex index_;
  std::map<int64_t, Batch> done_;
  int64_t next_batch_ = 0, committed_ = 0;
  uint64_t taken_bytes_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;
};

}  // namespace

uint64_t hash_of(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

bool RowChoice::takes(uint64_t content) const {
  if (part == Part::all) return true;
  const double place = static_cast<double>(derive(content, "held out")) * 0x1p-64;
  return (place < held_out) == (part == Part::held_out);
}

RowIndex build_index(const RowFile& file, const RowEncoder& encoder, const Survey& empty,
                     const IndexOptions& options) {
  return Builder(file, encoder, empty, options).build();
}

}  // namespace trainer
