#include "base/progress.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/live_lines.h"
#include "base/memory_room.h"
#include "base/progress_share.h"
#include "base/terminal.h"
#include "base/text.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatience = 2, kPlainInterval = 10;  // seconds
constexpr auto kTick = std::chrono::milliseconds(250);

std::string amount_text(int64_t done, int64_t total, ProgressUnit unit) {
  const auto text = [&](int64_t n) { return unit == ProgressUnit::bytes ? bytes_string(n) : grouped(n); };
  if (total > 0) return concat(text(std::min(done, total)), " of ", text(total));
  return done > 0 ? text(done) : "";
}

std::string percent(double share) { return concat(static_cast<int>(share * 100), " %"); }

}  // namespace

// All works of the process, and the thread that shows them. Never destroyed: the thread may outlive main().
class ProgressBoard {
 public:
  static ProgressBoard& of_process() {
    static ProgressBoard* const instance = new ProgressBoard;
    return *instance;
  }

  void add(const Progress* work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(work);
    wake();
  }

  void remove(const Progress* work) {
    const std::lock_guard lock(mutex_);
    works_.erase(std::ranges::find(works_, work));
    shares_.erase(work);
    if (work_is_shown_) draw();
  }

  void set_share(const Progress* work, double share) {
    const std::lock_guard lock(mutex_);
    shares_[work] = share;
  }

  void set_view(LiveView* view) {
    const std::lock_guard lock(mutex_);
    view_ = view;
    draw();
    wake();
  }

  std::string text() {
    const std::lock_guard lock(mutex_);
    const auto chain = shown_chain(/*with_steps=*/true);
    return chain.empty() ? "" : text_of(chain).plain();
  }

 private:
  using Chain = std::vector<const Progress*>;  // outermost first

  // A system that gives no thread has no progress shown.
  void wake() {
    if (!has_thread_) {
      has_thread_ = true;
      if (!is_room_for_threads(1)) return;
      try {
        std::thread([this] { run(); }).detach();
      } catch (const std::system_error&) {
        return;
      }
    }
    if (is_idle_) changed_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (works_.empty() && view_ == nullptr) {
        is_idle_ = true;
        changed_.wait(lock, [this] { return !works_.empty() || view_ != nullptr; });
        is_idle_ = false;
      }
      stderr_terminal() ? draw() : write_plain_line();
      changed_.wait_for(lock, kTick);
    }
  }

  // The works of the thread that began its newest one last, if its outermost one has taken long enough.
  Chain shown_chain(bool with_steps) const {
    for (auto newest = works_.rbegin(); newest != works_.rend(); newest++) {
      Chain chain;
      for (const Progress* work : works_) {
        if (work->thread_ == (*newest)->thread_) chain.push_back(work);
      }
      if (!with_steps && chain.front()->kind_.in_view) continue;
      if (seconds_since(chain.front()->begin_) >= kPatience) return chain;
    }
    return {};
  }

  // Numbers are those of the innermost work that knows how much there is.
  WorkText text_of(Chain chain) const {
    const auto whole =
        std::ranges::find_if(chain, [](const Progress* work) { return work->hides_parts_.load(); });
    if (whole != chain.end()) chain.erase(whole + 1, chain.end());
    WorkText text;
    std::vector<std::string> names;
    for (const Progress* work : chain) names.push_back(one_line(work->what_, 200));
    text.what = join(names, ": ");
    const auto known =
        std::find_if(chain.rbegin(), chain.rend(), [](const Progress* work) { return work->total_ > 0; });
    const Progress& counted = known == chain.rend() ? *chain.back() : **known;
    const int64_t done = counted.done_.load(std::memory_order_relaxed), total = counted.total_;
    text.amount = amount_text(done, total, counted.unit_);
    const double seconds = seconds_since(counted.begin_);
    if (total > 0) text.share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    if (const auto known_share = shares_.find(&counted); known_share != shares_.end())
      text.share = std::clamp(known_share->second, text.share.value_or(0.0), 1.0);
    if (text.share && *text.share > 0.01 && seconds >= kPatience) {
      text.time = concat(duration_string(seconds * (1 - *text.share) / *text.share), " left");
    } else {
      text.time = concat("for ", duration_string(seconds_since(chain.front()->begin_)));
    }
    return text;
  }

  void draw() {
    const std::optional<Terminal> terminal = stderr_terminal();
    if (!terminal || !log::is_shown(log::Level::info)) return;
    const size_t width = (terminal->width == 0 ? 80 : terminal->width) - 1;
    std::vector<std::string> lines;
    if (view_ != nullptr) lines = view_->live_lines(width);
    const Chain chain = shown_chain(/*with_steps=*/view_ == nullptr);
    work_is_shown_ = !chain.empty();
    if (work_is_shown_) lines.push_back(text_of(chain).line(width));
    show_live_lines(lines);
  }

  void write_plain_line() {
    if (last_plain_ && seconds_since(*last_plain_) < kPlainInterval) return;
    const Chain chain = shown_chain(/*with_steps=*/true);
    if (chain.empty() || log::seconds_of_silence() < chain.front()->kind_.silence_seconds) return;
    last_plain_ = Clock::now();
    log::show(text_of(chain).plain());
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<const Progress*> works_;  // in the order in which they began
  std::map<const Progress*, double> shares_;
  LiveView* view_ = nullptr;
  bool has_thread_ = false, is_idle_ = false, work_is_shown_ = false;
  std::optional<Clock::time_point> last_plain_;
};

Progress::Progress(std::string what, int64_t total, ProgressUnit unit)
    : Progress(std::move(what), total, unit, Kind{}) {}

Progress::Progress(std::string what, int64_t total, ProgressUnit unit, Kind kind)
    : what_(std::move(what)), unit_(unit), kind_(kind), total_(total) {
  ProgressBoard::of_process().add(this);
}

Progress::~Progress() { ProgressBoard::of_process().remove(this); }

void set_share(const Progress& work, double share) { ProgressBoard::of_process().set_share(&work, share); }

std::string current_work() { return ProgressBoard::of_process().text(); }

bool show_live_view(LiveView* view) {
  ProgressBoard::of_process().set_view(view);
  return stderr_terminal().has_value();
}

std::string WorkText::line(size_t width) const {
  std::vector<LinePart> parts;
  if (share) parts.push_back({percent(*share), 0});
  parts.insert(parts.end(), {{what, 0}, {amount, 2}, {time, 1}});
  const std::string text = fitted_line(parts, width);
  return share ? with_bar(*share, text, width) : text;
}

std::string WorkText::plain() const {
  std::string text = what;
  if (!amount.empty()) text += concat(" ", amount);
  if (share) text += concat(" (", percent(*share), ")");
  return concat(text, ", ", time);
}

}  // namespace trainer
