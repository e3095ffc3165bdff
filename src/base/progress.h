// The progress of work that takes a while. On a terminal the work is shown in a line at the bottom, from its
// third second on. Elsewhere, and with --plain, a line is written after two seconds and then every ten. Work
// of less than two seconds shows nothing, and --quiet shows none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trainer {

enum class ProgressUnit { things, bytes };

// Exists while the work is done. Works of a thread that exist at once are parts of each other: "evaluation:
// answers 3 of 8". Costs two locks in all; add() and set() are an atomic operation each, from any thread.
class Progress {
 public:
  // total: 0 if it is not known.
  explicit Progress(std::string what, int64_t total = 0, ProgressUnit unit = ProgressUnit::things);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(int64_t amount = 1) noexcept { done_.fetch_add(amount, std::memory_order_relaxed); }
  void set(int64_t done) noexcept { done_.store(done, std::memory_order_relaxed); }
  // Hides the parts of this work.
  void hide_parts() noexcept { hides_parts_ = true; }

 protected:
  struct Kind {
    bool in_view = false;        // a LiveView shows it already
    double silence_seconds = 0;  // plain lines only after so long without any other line
  };
  Progress(std::string what, int64_t total, ProgressUnit unit, Kind kind);

 private:
  friend class ProgressBoard;

  const std::string what_;
  const ProgressUnit unit_;
  const Kind kind_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const int64_t total_;
  std::atomic<int64_t> done_{0};
  std::atomic<bool> hides_parts_{false};
};

// A training step. Where a LiveView is, that shows it. Elsewhere steps have lines of their own, so a plain
// line comes only after half a minute without one.
class StepProgress : public Progress {
 public:
  explicit StepProgress(std::string what) : Progress(std::move(what), 0, ProgressUnit::things, {true, 30}) {}
};

// Returns what is being done now, "evaluation: 120 of 1,000 (12 %)"; "" for nothing that takes long.
std::string current_work();

// Lines for the terminal that are drawn above the line of the current work, several times a second.
class LiveView {
 public:
  virtual ~LiveView() = default;
  // Each of at most `width` columns. Called from another thread; must not log.
  virtual std::vector<std::string> live_lines(size_t width) = 0;
};

// Shows the view from here on; nullptr: none. A view must be taken back before it is destroyed. There is one
// at a time. Returns whether stderr is a terminal that shows it.
bool show_live_view(LiveView* view);

// One piece of work, and its line in at most `width` columns.
struct WorkText {
  std::string what;
  std::string amount;           // "3 of 8"; may be empty
  std::optional<double> share;  // 0 to 1
  std::string time;             // "12 s left", "for 12 s"

  std::string line(size_t width) const;  // with a bar, if there is room
  std::string plain() const;
};

// Timing.

// Returns the seconds from `begin` until now.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace trainer
