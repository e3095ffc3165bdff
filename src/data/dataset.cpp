#include "trainer/data/dataset.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/data_files.h"

#include "data/row_encoder.h"
#include "data/row_file.h"
#include "data/row_parser.h"
#include "data/survey.h"

namespace trainer {
namespace {

struct BadRow {
  int64_t index;
  std::string problem;
};
constexpr size_t kBadRowsShown = 5;

// What one thread of the survey has found.
struct SurveyWorker {
  Survey survey;
  std::vector<BadRow> bad_rows;  // the first ones
  int64_t bad_row_count = 0;
  std::exception_ptr failure;

  void merge(const SurveyWorker& other) {
    survey.merge(other.survey);
    bad_rows.insert(bad_rows.end(), other.bad_rows.begin(), other.bad_rows.end());
    bad_row_count += other.bad_row_count;
  }
};

// Says every ten seconds how far it is.
class Progress {
 public:
  explicit Progress(int64_t rows) : rows_(rows) {}
  void show(int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < std::chrono::seconds(10)) return;
    shown_ = now;
    log::info(concat("data: ", grouped(done), " of ", grouped(rows_), " rows read"));
  }

 private:
  int64_t rows_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace

struct Dataset::State {
  std::vector<RowFile> files;
  std::vector<int64_t> first_rows;  // index of each file's first row; one more: the number of rows
  DataConfig config;
  const Tokenizer* tokenizer;
  bool encoder_decoder;
  std::unique_ptr<RowEncoder> encoder;
  DataReport report;
  std::string name;

  struct Place {
    const RowFile* file;
    int64_t row;
  };
  Place find(int64_t index) const {
    const auto next = std::upper_bound(first_rows.begin(), first_rows.end(), index);
    const auto file = static_cast<size_t>(next - first_rows.begin() - 1);
    return {&files[file], index - first_rows[file]};
  }
  int64_t size() const { return first_rows.back(); }

  void parse(RowParser& parser, int64_t index) const {
    const auto [file, row] = find(index);
    parser.parse(file->row(row), file->readable_after(row));
  }
  // What `make` makes of a row that was fine when the data were opened.
  template <class Make>
  auto read(int64_t index, const Make& make) const {
    thread_local RowParser parser;  // it keeps its buffers
    try {
      parse(parser, index);
      return make(parser);
    } catch (const DataError& e) {
      throw DataError(concat(origin(index), ": the file has changed since it was opened: ", e.what()));
    }
  }
  std::string origin(int64_t index) const {
    const auto [file, row] = find(index);
    return file->origin(row);
  }

  void make_encoder();
  void survey(int64_t num_workers);
  void survey_rows(SurveyWorker& worker, std::atomic<int64_t>& next, Progress* progress) const;
  void survey_row(SurveyWorker& worker, RowParser& parser, int64_t index) const;
  [[noreturn]] void throw_bad_rows(std::vector<BadRow> rows, int64_t count) const;
  void check_supervision() const;
};

// From the first row that can be parsed; those that cannot are reported by the survey.
void Dataset::State::make_encoder() {
  RowParser parser;
  for (int64_t first = 0; first < size(); first++) {
    try {
      parse(parser, first);
    } catch (const DataError&) {
      continue;
    }
    try {
      encoder = make_row_encoder(config, parser, *tokenizer, encoder_decoder);
    } catch (const DataError& e) {
      throw DataError(concat(origin(first), ": ", e.what()));
    }
    report.kind = encoder->kind();
    report.input_field = encoder->input_field();
    report.target_field = encoder->target_field();
    return;
  }
}

void Dataset::State::survey_row(SurveyWorker& worker, RowParser& parser, int64_t index) const {
  try {
    parse(parser, index);
    worker.survey.add(encoder->encode(parser).front(), encoder->texts(parser), encoder->kind());
  } catch (const DataError& e) {
    worker.bad_row_count++;
    // Each thread takes its rows in rising order, so the first of all are among the first of each.
    if (worker.bad_rows.size() < kBadRowsShown) worker.bad_rows.push_back({index, e.what()});
  }
}

// A thread's share: chunk after chunk until none is left.
void Dataset::State::survey_rows(SurveyWorker& worker, std::atomic<int64_t>& next, Progress* progress) const {
  constexpr int64_t kChunk = 256;
  try {
    RowParser parser;
    for (int64_t begin; (begin = next.fetch_add(kChunk)) < size();) {
      if (progress) progress->show(begin);
      const int64_t end = std::min(begin + kChunk, size());
      for (int64_t index = begin; index < end; index++) survey_row(worker, parser, index);
    }
  } catch (...) {
    worker.failure = std::current_exception();
    next = size();
  }
}

void Dataset::State::survey(int64_t num_workers) {
  std::vector<SurveyWorker> workers(static_cast<size_t>(std::clamp<int64_t>(num_workers, 1, size())),
                                    SurveyWorker{Survey(*tokenizer), {}, 0, nullptr});
  SurveyWorker& all = workers.front();  // this thread's
  std::atomic<int64_t> next = 0;
  Progress progress(size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < workers.size(); i++) {
      threads.emplace_back([&, i] { survey_rows(workers[i], next, nullptr); });
    }
    survey_rows(all, next, &progress);
  }
  for (SurveyWorker& worker : workers) {
    if (worker.failure) std::rethrow_exception(worker.failure);
    if (&worker != &all) all.merge(worker);
  }
  if (all.bad_row_count > 0) throw_bad_rows(all.bad_rows, all.bad_row_count);
  DataReport counts = all.survey.report();
  counts.kind = report.kind;
  counts.input_field = report.input_field;
  counts.target_field = report.target_field;
  report = counts;
}

void Dataset::State::throw_bad_rows(std::vector<BadRow> rows, int64_t count) const {
  std::sort(rows.begin(), rows.end(), [](const BadRow& a, const BadRow& b) { return a.index < b.index; });
  rows.resize(std::min(rows.size(), kBadRowsShown));
  std::vector<std::string> lines;
  for (const BadRow& row : rows) lines.push_back(concat(origin(row.index), ": ", row.problem));
  if (count == 1) throw DataError(lines.front());
  const int64_t more = count - static_cast<int64_t>(rows.size());
  throw DataError(concat(grouped(count), " of ", grouped(size()), " rows cannot be used:\n  ",
                         join(lines, "\n  "), more > 0 ? concat("\n  and ", grouped(more), " more") : ""));
}

void Dataset::State::check_supervision() const {
  if (report.without_supervision < report.samples) return;
  const std::string reason =
      report.kind == DataKind::completion
          ? concat("every prompt fills data.max_length (", config.max_length, ") alone; raise it")
          : "no text has more than one token";
  throw DataError(concat(files.front().origin(0), ": nothing to learn in any of the ",
                         grouped(report.samples), " samples: ", reason));
}

Dataset Dataset::open(const std::vector<DataSource>& sources, const Config& config,
                      const Tokenizer& tokenizer, bool encoder_decoder) {
  if (sources.empty()) throw DataError("data.train: no data files are given");
  auto state = std::make_shared<State>();
  std::vector<std::string> names;
  for (const DataSource& source : sources) names.push_back(source.path);
  state->name = join(names);
  state->config = config.data;
  state->tokenizer = &tokenizer;
  state->encoder_decoder = encoder_decoder;
  state->first_rows.push_back(0);
  for (const DataSource& source : sources) {
    for (const std::filesystem::path& file : data_files(source)) {
      state->files.push_back(RowFile::open(file));
      state->first_rows.push_back(state->first_rows.back() + state->files.back().size());
    }
  }
  state->make_encoder();
  state->survey(config.training.num_workers);
  state->check_supervision();
  return Dataset(state);
}

Dataset Dataset::open_train(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder) {
  return open(config.data.train, config, tokenizer, encoder_decoder);
}

Dataset Dataset::open_eval(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder) {
  return open(config.data.eval.sources, config, tokenizer, encoder_decoder);
}

int64_t Dataset::size() const { return state_->size(); }

bool Dataset::encoder_decoder() const { return state_->encoder_decoder; }

Sample Dataset::sample(int64_t index) const {
  return state_->read(index, [&](const RowParser& row) { return state_->encoder->encode(row); })
      .front()
      .sample;
}

Dataset::Texts Dataset::texts(int64_t index) const {
  return state_->read(index, [&](const RowParser& row) { return state_->encoder->texts(row); });
}

const std::string& Dataset::name() const { return state_->name; }

const DataReport& Dataset::report() const { return state_->report; }

std::string Dataset::origin(int64_t index) const { return state_->origin(index); }

}  // namespace trainer
