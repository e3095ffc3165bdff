// The lines of a run on the terminal.
#include "observe/console.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <vector>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/progress.h"
#include "base/terminal.h"
#include "base/text.h"
#include "observe/time_left.h"

namespace trainer {
namespace {

// At most 256 means of equally many steps each.
class LossCurve {
 public:
  void add(double loss) {
    if (!std::isfinite(loss)) return;
    sum_ += loss;
    if (++count_ < each_) return;
    means_.push_back(sum_ / static_cast<double>(each_));
    sum_ = 0;
    count_ = 0;
    if (means_.size() == kMost) halve();
  }
  const std::vector<double>& means() const { return means_; }

 private:
  static constexpr size_t kMost = 256;

  void halve() {
    for (size_t i = 0; i < kMost / 2; i++) means_[i] = (means_[2 * i] + means_[2 * i + 1]) / 2;
    means_.resize(kMost / 2);
    each_ *= 2;
  }

  std::vector<double> means_;
  int64_t each_ = 1, count_ = 0;  // steps of a mean; of the next one so far
  double sum_ = 0;
};

using Values = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr auto number = row_number;

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, std::isnan(value) ? std::abs(value) : value);  // never "-nan"
  return text;
}

// Parts of a line; a part without its number is left out. Ranks: see LinePart.
class Line {
 public:
  explicit Line(const std::string& start) : parts_{{start, 0}} {}

  Line& add(const std::string& part, int rank = 1) {
    parts_.push_back({part, rank});
    return *this;
  }
  Line& add(const char* format, std::optional<double> value, double factor = 1, int rank = 1) {
    return value ? add(formatted(format, *value * factor), rank) : *this;
  }
  Line& count(std::optional<double> value, const char* unit, int rank = 1) {
    return value ? add(concat(grouped(std::llround(*value)), " ", unit), rank) : *this;
  }
  Line& duration(const char* what, std::optional<double> seconds, int rank = 1) {
    return seconds ? add(concat(what, duration_string(*seconds)), rank) : *this;
  }
  std::string within(size_t width) const { return fitted_line(parts_, width); }
  std::string text() const { return within(std::string::npos); }
  void log() const {
    log::info_in_one_line(text(), [this](size_t width) { return within(width); });
  }

 private:
  std::vector<LinePart> parts_;
};

// The steps since the last line.
struct Interval {
  int64_t steps = 0, losses = 0;
  double loss = 0, seconds = 0, data_wait = 0, tokens = 0, samples = 0, peak = 0;

  void add(const Values& values) {
    steps++;
    if (const auto value = number(values, "loss")) {
      loss += *value;
      losses++;
    }
    seconds += number(values, "step_seconds").value_or(0);
    data_wait += number(values, "data_wait_seconds").value_or(0);
    tokens += number(values, "tokens").value_or(0);
    samples += number(values, "samples").value_or(0);
    peak = std::max(peak, number(values, "memory_peak").value_or(0));
  }
  std::optional<double> mean_loss() const {
    return losses > 0 ? std::optional(loss / static_cast<double>(losses)) : std::nullopt;
  }
  // The share of the time spent waiting; nothing if it is negligible.
  std::optional<double> share_of_waiting() const {
    return data_wait >= 0.01 * seconds && seconds > 0 ? std::optional(data_wait / seconds) : std::nullopt;
  }
  std::optional<double> per_second(double amount) const {
    return seconds > 0 && amount > 0 ? std::optional(amount / seconds) : std::nullopt;
  }
};

std::string step_text(int64_t step, int64_t total) {
  return total > 0 ? concat("step ", step, "/", total) : concat("step ", step);
}

// " of rank 2", if there are several
std::string of_rank_text(const Values& row) {
  const auto rank = number(row, "memory_peak_rank");
  return rank ? concat(" of rank ", std::llround(*rank)) : "";
}

// " (peak 18.2 GB, 76 % of 24.0 GB)"
std::string peak_text(double peak, const Values& row) {
  if (peak <= 0) return "";
  const auto limit = number(row, "memory_limit");
  const std::string text = concat(" (peak ", bytes_string(std::llround(peak)), of_rank_text(row));
  if (!limit) return text + ")";
  return concat(text, ", ", std::llround(100 * peak / *limit), " % of ", bytes_string(std::llround(*limit)),
                ")");
}

// The scores of generated answers.
void show_scores(const Values& values) {
  Line line("answers");
  line.count(number(values, "eval_generated_samples"), "samples")
      .add("exact match %.2f %%", number(values, "eval_exact_match"), 100)
      .add("f1 %.2f %%", number(values, "eval_f1"), 100)
      .add("rouge1 %.4f", number(values, "eval_rouge1"))
      .add("rouge2 %.4f", number(values, "eval_rouge2"))
      .add("rougeL %.4f", number(values, "eval_rougeL"))
      .add("bleu %.2f", number(values, "eval_bleu"))
      .add("chrf %.2f", number(values, "eval_chrf"))
      .add("ter %.2f", number(values, "eval_ter"))
      .add("valid json %.2f %%", number(values, "eval_json_valid"), 100)
      .add("equal json %.2f %%", number(values, "eval_json_match"), 100)
      .add("right fields %.2f %%", number(values, "eval_json_fields"), 100)
      .add("%.1f tokens", number(values, "eval_gen_len"))
      .duration("in ", number(values, "eval_generation_seconds"));
  log::info(line.text());  // a table of scores may take two lines
}

void show_evaluation(const Values& values) {
  Line line(concat("evaluation at step ", values.value("step", int64_t{0})));
  line.add("eval_loss %.4f", number(values, "eval_loss"), 1, 0)
      .add("perplexity %.4g", number(values, "eval_perplexity"), 1, 3)
      .add("token accuracy %.2f %%", number(values, "eval_token_accuracy"), 100, 2)
      .add("reward accuracy %.2f %%", number(values, "eval_reward_accuracy"), 100, 2)
      .add("margin %.4f", number(values, "eval_reward_margin"), 1, 2)
      .add("accuracy %.2f %%", number(values, "eval_accuracy"), 100, 2)
      .add("mean error %.4g", number(values, "eval_mae"), 1, 2)
      .add("pearson %.4f", number(values, "eval_pearson"), 1, 2)
      .count(number(values, "eval_samples"), "samples", 4)
      .duration("in ", number(values, "eval_seconds"));
  if (values.contains("eval_confusion")) line.add("f1 %.2f %%", number(values, "eval_f1"), 100, 2);
  line.log();
  if (values.contains("eval_generated_samples")) show_scores(values);
}

// "left 1 h 05 min and 3 evaluations"
std::string left_text(const TimeLeft::Estimate& left) {
  if (left.seconds < 0.5 && left.evaluations == 0) return "finishing";
  const std::string text = concat("left ", duration_string(left.seconds));
  if (left.evaluations == 0) return text;
  return concat(text, " and ", left.evaluations, left.evaluations == 1 ? " evaluation" : " evaluations");
}

}  // namespace

struct Console::State {
  std::mutex mutex;  // guards all below: the live block is made by another thread
  ConsoleOptions options;
  bool is_live = false;
  bool utf8 = locale_has_utf8();
  int64_t total_steps = 0, steps_seen = 0;
  TimeLeft time_left;
  LossCurve losses;
  Interval interval, last_interval;
  Values last_row;  // the last train row
  struct Evaluation {
    int64_t step = 0;
    double loss = 0;
  };
  std::optional<Evaluation> evaluation, lowest;
  std::optional<int64_t> saved_step;
  Clock::time_point saved;
  bool save_failed = false;

  int64_t step() const { return last_row.is_null() ? 0 : last_row.value("step", steps_seen); }

  Line take_interval() {
    Line line(step_text(step(), total_steps));
    line.add("epoch %.2f", number(last_row, "epoch"), 1, 5)
        .add("loss %.4f", interval.mean_loss(), 1, 0)
        .add("margin %.3f", number(last_row, "reward_margin"), 1, 5)
        .add("accuracy %.0f %%", number(last_row, "reward_accuracy"), 100, 5)
        .add("grad_norm %.3g", number(last_row, "grad_norm"), 1, 6)
        .add("lr %.2e", number(last_row, "learning_rate"), 1, 4)
        .count(interval.per_second(interval.tokens), "tok/s", 2)
        .add("%.1f samples/s", interval.per_second(interval.samples), 1, 8)
        .add("waits for data %.0f %%", interval.share_of_waiting(), 100, 3);
    if (const auto in_use = number(last_row, "memory_allocated")) {
      line.add(concat("mem ", bytes_string(std::llround(*in_use)), peak_text(interval.peak, last_row)), 7);
    }
    if (const auto left = time_left.estimate()) line.add(left_text(*left), 1);
    last_interval = interval;
    interval = {};
    return line;
  }

  // Returns the line of the interval that ends with this row, if one does.
  std::optional<Line> add_step(const Values& values) {
    last_row = values;
    interval.add(values);
    losses.add(number(values, "loss").value_or(std::nan("")));
    steps_seen++;
    if (step() % std::max<int64_t>(options.logging_steps, 1) != 0 && step() != total_steps)
      return std::nullopt;
    return take_interval();
  }

  void add_evaluation(const Values& values) {
    const auto loss = number(values, "eval_loss");
    if (!loss) return;
    evaluation = Evaluation{values.value("step", int64_t{0}), *loss};
    if (!lowest || *loss < lowest->loss) lowest = evaluation;
  }

  void add_save(const Values& values, bool failed) {
    save_failed = failed;
    if (failed) return;
    saved_step = values.value("step", int64_t{0});
    saved = Clock::now();
  }

  std::string way_line(size_t width) const {
    const double share = total_steps > 0 ? static_cast<double>(step()) / static_cast<double>(total_steps) : 0;
    std::vector<LinePart> parts;
    if (total_steps > 0) parts.push_back({concat(static_cast<int>(share * 100), " %"), 0});
    parts.push_back({step_text(step(), total_steps), 0});
    if (const auto epoch = number(last_row, "epoch")) parts.push_back({formatted("epoch %.2f", *epoch), 3});
    if (const auto left = time_left.estimate()) {
      parts.push_back({left->seconds < 0.5 ? "finishing" : "left " + duration_string(left->seconds), 1});
      if (left->evaluations > 0) parts.push_back({concat("plus ", left->evaluations, " evaluations"), 2});
    }
    const std::string text = fitted_line(parts, width);
    return total_steps > 0 ? with_bar(share, text, width) : text;
  }

  // The curve takes the room that the numbers leave.
  std::string loss_line(size_t width) const {
    const Interval& recent = interval.steps > 0 ? interval : last_interval;
    const auto loss = recent.mean_loss();
    if (!loss) return "";
    const std::string first = formatted("loss %.4f", *loss);
    Line rest(first);
    rest.add("lr %.2e", number(last_row, "learning_rate"), 1, 2)
        .count(recent.per_second(recent.tokens), "tok/s", 1)
        .add("waits for data %.0f %%", recent.share_of_waiting(), 100, 3);
    constexpr size_t kSmallest = 8, kLargest = 24;
    const bool has_curve = losses.means().size() > 1 && width > first.size() + kSmallest;
    std::string line = rest.within(has_curve ? width - kSmallest - 1 : width);
    const size_t used = count_characters(line) + 1;
    if (has_curve)
      line.insert(first.size(), " " + sparkline(losses.means(), std::min(width - used, kLargest), utf8));
    return line;
  }

  std::string memory_line(size_t width) const {
    const auto in_use = number(last_row, "memory_allocated"), limit = number(last_row, "memory_limit");
    if (!in_use) return "";
    const double peak = number(last_row, "memory_peak").value_or(*in_use);
    const std::string of_rank = of_rank_text(last_row);
    const auto text = [](double bytes) { return bytes_string(std::llround(bytes)); };
    if (!limit)
      return fitted_line({{"memory " + text(*in_use), 0}, {"peak " + text(peak) + of_rank, 1}}, width);
    const double share = peak / *limit;
    const std::string line =
        fitted_line({{concat("memory ", text(*in_use), ", peak ", text(peak), of_rank), 0},
                     {concat(std::llround(100 * share), " %"), 1},
                     {concat("of ", text(*limit)), 2}},
                    width);
    return with_bar(share, line, width);
  }

  std::string events_line(size_t width) const {
    std::vector<LinePart> parts;
    if (evaluation) {
      parts.push_back({formatted("evaluation %.4f", evaluation->loss), 0});
      parts.push_back({concat("at step ", evaluation->step), 2});
    }
    if (lowest && lowest->step != evaluation->step)
      parts.push_back({concat(formatted("lowest %.4f", lowest->loss), " at step ", lowest->step), 4});
    if (save_failed) {
      parts.push_back({"the last save FAILED", 0});
    } else if (saved_step) {
      parts.push_back({concat("saved step ", *saved_step), 1});
      parts.push_back({concat(duration_string(seconds_since(saved)), " ago"), 3});
    }
    return fitted_line(parts, width);
  }
};

Console::Console(const ConsoleOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
}

Console::~Console() {
  if (state_->is_live) show_live_view(nullptr);
}

void Console::start(const StartBlock& block, const RunOutlook& outlook) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->total_steps = outlook.total_steps;
    state_->time_left.set_outlook(outlook);
  }
  size_t width = 0;
  for (const auto& [name, value] : block.lines) width = std::max(width, name.size());
  for (const auto& [name, value] : block.lines) {
    log::info(concat(name, std::string(width - name.size() + 2, ' '), value));
  }
  state_->is_live = true;
  show_live_view(this);
}

void Console::write(const MetricRow& row) {
  std::optional<Line> line;
  {
    const std::lock_guard lock(state_->mutex);
    state_->time_left.add(row);
    if (row.kind == "train") line = state_->add_step(row.values);
    if (row.kind == "eval") state_->add_evaluation(row.values);
    if (row.kind == "save" || row.kind == "save_failed")
      state_->add_save(row.values, row.kind == "save_failed");
  }
  if (line) line->log();
  if (row.kind == "eval") show_evaluation(row.values);
}

std::vector<std::string> Console::live_lines(size_t width) {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> lines{state_->way_line(width), state_->loss_line(width),
                                 state_->memory_line(width), state_->events_line(width)};
  std::erase(lines, "");
  return lines;
}

void Console::finish() {
  std::optional<Line> line;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->interval.steps > 0) line = state_->take_interval();
  }
  if (line) line->log();
  if (state_->is_live) show_live_view(nullptr);
  state_->is_live = false;
}

}  // namespace trainer
