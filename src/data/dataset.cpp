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

#include "data/encode.h"
#include "data/fields.h"
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
  DataKind kind = DataKind::automatic;
  TextTemplate input;
  std::optional<TextTemplate> target;  // none for kind text
  DataReport report;

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
  Texts texts(RowParser& parser, int64_t index) const {
    parse(parser, index);
    return {input.apply(parser), target ? target->apply(parser) : ""};
  }
  EncodedSample encode(const Texts& texts) const {
    return encode_sample(texts.input, texts.target, kind, config, *tokenizer);
  }
  std::string origin(int64_t index) const {
    const auto [file, row] = find(index);
    return file->origin(row);
  }

  void choose_fields();
  void survey(int64_t num_workers);
  void survey_rows(SurveyWorker& worker, std::atomic<int64_t>& next, Progress* progress) const;
  void survey_row(SurveyWorker& worker, RowParser& parser, int64_t index) const;
  [[noreturn]] void throw_bad_rows(std::vector<BadRow> rows, int64_t count) const;
  void check_supervision() const;
};

namespace {

// One parser for each thread that reads samples: it keeps its buffers.
RowParser& thread_parser() {
  thread_local RowParser parser;
  return parser;
}

}  // namespace

// From the first row that can be parsed; those that cannot are reported by the survey.
void Dataset::State::choose_fields() {
  RowParser parser;
  std::vector<std::string> names;
  int64_t first = 0;
  for (; first < size(); first++) {
    try {
      parse(parser, first);
    } catch (const DataError&) {
      continue;
    }
    names = parser.fields();
    break;
  }
  if (first == size()) return;
  Fields fields;
  try {
    fields = trainer::choose_fields(config, names, encoder_decoder);
  } catch (const DataError& e) {
    throw DataError(concat(origin(first), ": ", e.what()));
  }
  kind = report.kind = fields.kind;
  input = TextTemplate::parse(fields.input, "data.input");
  if (!fields.target.empty()) target = TextTemplate::parse(fields.target, "data.target");
  report.input_field = fields.input;
  report.target_field = fields.target;
}

void Dataset::State::survey_row(SurveyWorker& worker, RowParser& parser, int64_t index) const {
  try {
    const Texts row_texts = texts(parser, index);
    worker.survey.add(encode(row_texts), row_texts, kind);
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
  const std::string reason = kind == DataKind::completion ? concat("every prompt fills data.max_length (",
                                                                   config.max_length, ") alone; raise it")
                                                          : "no text has more than one token";
  throw DataError(concat(files.front().origin(0), ": nothing to learn in any of the ",
                         grouped(report.samples), " samples: ", reason));
}

Dataset Dataset::open(const std::vector<std::string>& files, const Config& config, const Tokenizer& tokenizer,
                      bool encoder_decoder) {
  if (files.empty()) throw DataError("data.train: no data files are given");
  auto state = std::make_shared<State>();
  state->config = config.data;
  state->tokenizer = &tokenizer;
  state->encoder_decoder = encoder_decoder;
  state->first_rows.push_back(0);
  for (const std::string& file : files) {
    state->files.push_back(RowFile::open(file));
    state->first_rows.push_back(state->first_rows.back() + state->files.back().size());
  }
  state->choose_fields();
  state->survey(config.training.num_workers);
  state->check_supervision();
  return Dataset(state);
}

int64_t Dataset::size() const { return state_->size(); }

bool Dataset::encoder_decoder() const { return state_->encoder_decoder; }

Sample Dataset::sample(int64_t index) const { return state_->encode(texts(index)).sample; }

Dataset::Texts Dataset::texts(int64_t index) const {
  try {
    return state_->texts(thread_parser(), index);
  } catch (const DataError& e) {  // every row was fine when the data were opened
    throw DataError(concat(origin(index), ": the file has changed since it was opened: ", e.what()));
  }
}

const DataReport& Dataset::report() const { return state_->report; }

std::string Dataset::origin(int64_t index) const { return state_->origin(index); }

}  // namespace trainer
