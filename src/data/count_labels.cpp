#include "data/count_labels.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "trainer/base/error.h"

#include "base/progress.h"
#include "base/threads.h"

namespace trainer {
namespace {

class LabelCounter {
 public:
  LabelCounter(const LabelEncoder& encoder, const std::vector<RowFile>& files, const RowChoice& choice)
      : encoder_(encoder), files_(files), choice_(choice) {}

  CountedLabels count(int64_t num_workers) {
    const int64_t workers = std::max<int64_t>(num_workers, 1);
    std::vector<CountedLabels> found(static_cast<size_t>(workers));
    {
      std::vector<std::jthread> threads;
      start_threads(threads, workers - 1, [&](int64_t i) { work(found[static_cast<size_t>(i) + 1]); });
      work(found.front());
    }
    if (failure_) std::rethrow_exception(failure_);
    for (size_t i = 1; i < found.size(); i++) merge(found[i], found.front());
    return std::move(found.front());
  }

 private:
  // Rows that a worker takes at once, all of one file.
  struct Rows {
    const RowFile* file = nullptr;
    std::shared_ptr<const MappedFile> held;
    std::vector<RowSpan> spans;
  };

  void work(CountedLabels& found) {
    try {
      RowParser parser;
      for (Rows rows; take(rows);)
        for (const RowSpan row : rows.spans) look_at(*rows.file, row, parser, found);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_file_ = files_.size();
      scanner_.reset();
    }
  }

  bool take(Rows& rows) {
    constexpr size_t kRows = 256;
    const std::lock_guard lock(mutex_);
    rows.spans.clear();
    while (rows.spans.empty()) {
      if (!scanner_) {
        if (next_file_ >= files_.size()) return false;
        scanner_.emplace(files_[next_file_++]);
      }
      rows.file = &files_[next_file_ - 1];
      rows.held = rows.file->map();
      RowSpan row{};
      while (rows.spans.size() < kRows && scanner_->next(row)) rows.spans.push_back(row);
      if (rows.spans.size() < kRows) scanner_.reset();
    }
    return true;
  }

  void look_at(const RowFile& file, RowSpan row, RowParser& parser, CountedLabels& found) const {
    try {
      file.parse(parser, row);
      const bool taken = choice_.part == RowChoice::Part::all ||
                         choice_.takes(hash_of(encoder_.content(encoder_.read(parser))));
      for (const std::string& label : encoder_.labels_of(parser)) add(label, taken, found);
    } catch (const DataError&) {  // it is reported with all bad rows
    }
  }

  // The classes are those of all rows, so that every label of an evaluation on rows that are held out is one.
  void add(const std::string& label, bool taken, CountedLabels& found) const {
    if (encoder_.labels().score != RowScore::number) found.counts[label] += taken ? 1 : 0;
    if (!taken) return;
    if (found.labels++ == 0) found.first = label;
    found.all_equal = found.all_equal && label == found.first;
  }

  static void merge(const CountedLabels& other, CountedLabels& all) {
    for (const auto& [label, count] : other.counts) all.counts[label] += count;
    if (other.labels == 0) return;
    if (all.labels == 0) all.first = other.first;
    all.all_equal = all.all_equal && other.all_equal && all.first == other.first;
    all.labels += other.labels;
  }

  const LabelEncoder& encoder_;
  const std::vector<RowFile>& files_;
  const RowChoice& choice_;

  std::mutex mutex_;  // guards everything below
  std::optional<RowScanner> scanner_;
  size_t next_file_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

CountedLabels count_labels(const LabelEncoder& encoder, const std::vector<RowFile>& files,
                           const RowChoice& choice, int64_t num_workers) {
  const Progress shown("reading the labels");
  return LabelCounter(encoder, files, choice).count(num_workers);
}

}  // namespace trainer
