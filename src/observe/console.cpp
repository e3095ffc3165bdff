#include "trainer/observe/console.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <unistd.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "observe/progress_bar.h"

namespace trainer {
namespace {

using Values = nlohmann::ordered_json;

// Returns a number of the row; nothing if it is absent or null (a stored NaN).
std::optional<double> number(const Values& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, std::isnan(value) ? std::abs(value) : value);  // never "-nan"
  return text;
}

// Parts of a line, two blanks apart; a part without its number is left out.
class Line {
 public:
  explicit Line(std::string start) : text_(std::move(start)) {}

  Line& add(const std::string& part) {
    text_ += "  " + part;
    return *this;
  }
  Line& add(const char* format, std::optional<double> value, double factor = 1) {
    return value ? add(formatted(format, *value * factor)) : *this;
  }
  Line& count(std::optional<double> value, const char* unit) {
    return value ? add(concat(grouped(std::llround(*value)), " ", unit)) : *this;
  }
  Line& duration(const char* what, std::optional<double> seconds) {
    return seconds ? add(concat(what, duration_string(*seconds))) : *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
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

// " (peak 18.2 GB, 76 % of 24.0 GB)"
std::string peak_text(double peak, std::optional<double> limit) {
  if (peak <= 0) return "";
  const std::string text = concat(" (peak ", bytes_string(std::llround(peak)));
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
      .add("valid json %.2f %%", number(values, "eval_json_valid"), 100)
      .add("equal json %.2f %%", number(values, "eval_json_match"), 100)
      .add("%.1f tokens", number(values, "eval_gen_len"))
      .duration("in ", number(values, "eval_generation_seconds"));
  log::info(line.text());
}

void show_evaluation(const Values& values) {
  Line line(concat("evaluation at step ", values.value("step", int64_t{0})));
  line.add("eval_loss %.4f", number(values, "eval_loss"))
      .add("perplexity %.4g", number(values, "eval_perplexity"))
      .add("token accuracy %.2f %%", number(values, "eval_token_accuracy"), 100)
      .count(number(values, "eval_samples"), "samples")
      .duration("in ", number(values, "eval_seconds"));
  log::info(line.text());
  if (values.contains("eval_generated_samples")) show_scores(values);
}

}  // namespace

struct Console::State {
  ConsoleOptions options;
  std::optional<ProgressBar> bar;
  int64_t total_steps = 0;
  Interval interval;
  Values last_row;  // the last train row
  int64_t steps_seen = 0;
  double seconds_seen = 0;

  int64_t step() const { return last_row.value("step", steps_seen); }

  // Estimated from the mean duration of the steps so far.
  std::optional<double> seconds_left() const {
    if (total_steps <= 0 || steps_seen == 0 || seconds_seen <= 0) return std::nullopt;
    const auto steps_left = static_cast<double>(std::max<int64_t>(total_steps - step(), 0));
    return steps_left * seconds_seen / static_cast<double>(steps_seen);
  }

  void draw_bar() {
    if (!bar || !log::is_shown(log::Level::info)) return;
    Line detail("");
    detail.add("loss %.4f", number(last_row, "loss")).duration("left ", seconds_left());
    bar->draw(step_text(step(), total_steps), step(), total_steps,
              detail.text().empty() ? "" : detail.text().substr(2));
  }

  void show_interval() {
    Line line(step_text(step(), total_steps));
    line.add("epoch %.2f", number(last_row, "epoch"))
        .add("loss %.4f", interval.mean_loss())
        .add("grad_norm %.3g", number(last_row, "grad_norm"))
        .add("lr %.2e", number(last_row, "learning_rate"))
        .count(interval.per_second(interval.tokens), "tok/s")
        .add("%.1f samples/s", interval.per_second(interval.samples))
        .add("waits for data %.0f %%", interval.share_of_waiting(), 100);
    if (const auto in_use = number(last_row, "memory_allocated")) {
      line.add(concat("mem ", bytes_string(std::llround(*in_use)),
                      peak_text(interval.peak, number(last_row, "memory_limit"))));
    }
    line.duration("left ", seconds_left());
    log::info(line.text());
    interval = {};
  }

  void add_step(const Values& values) {
    last_row = values;
    interval.add(values);
    steps_seen++;
    seconds_seen += number(values, "step_seconds").value_or(0);
    if (step() % std::max<int64_t>(options.logging_steps, 1) == 0 || step() == total_steps) show_interval();
    draw_bar();
  }
};

ConsoleOptions console_options(int64_t logging_steps) {
  return {logging_steps, ::isatty(STDERR_FILENO) == 1};
}

Console::Console(const ConsoleOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  if (options.progress_bar) state_->bar.emplace();
}

Console::~Console() = default;

void Console::start(const StartBlock& block, int64_t total_steps) {
  state_->total_steps = total_steps;
  size_t width = 0;
  for (const auto& [name, value] : block.lines) width = std::max(width, name.size());
  for (const auto& [name, value] : block.lines) {
    log::info(concat(name, std::string(width - name.size() + 2, ' '), value));
  }
}

void Console::write(const MetricRow& row) {
  if (row.kind == "train") {
    state_->add_step(row.values);
  } else if (row.kind == "eval") {
    show_evaluation(row.values);
  }
}

void Console::progress(const std::string& what, int64_t done, int64_t total) {
  if (state_->bar && log::is_shown(log::Level::info)) {
    state_->bar->draw(concat(what, " ", grouped(done), "/", grouped(total)), done, total, "");
  }
}

void Console::finish() {
  if (state_->interval.steps > 0) state_->show_interval();
  if (state_->bar) state_->bar->clear();
}

}  // namespace trainer
