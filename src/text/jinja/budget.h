// The time and memory that one rendering of a template may use. The limits are far above what templates of
// real models need on conversations of many megabytes; only a template that grows without bounds hits them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace trainer::jinja {

class Object;

struct OutOfBudget : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The budget of the rendering that this thread works on; values made outside of one cost nothing. It belongs
// to the thread, because values, texts and operators are made everywhere and know no rendering.
class Budget {
 public:
  static constexpr int64_t kMostSteps = 1'000'000'000;     // of some nanoseconds each
  static constexpr int64_t kBytesPerStep = 16;             // that are copied
  static constexpr int64_t kMostBytes = int64_t{1} << 30;  // in values at one time
  static constexpr size_t kLongestText = size_t{1} << 27;
  static constexpr int kDeepestValue = 1'000;

  Budget();
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Each throws OutOfBudget.
  static void spend(size_t steps) {
    if (current_ && (current_->steps_ += static_cast<int64_t>(steps)) > kMostSteps) out_of_steps();
  }
  static void spend_bytes(size_t bytes) { spend(4 + bytes / kBytesPerStep); }
  // Before that many bytes are allocated.
  static void require_room(size_t bytes);

  // A namespace, the only value that can hold itself, is emptied at the end of the rendering.
  static void keep(const std::shared_ptr<Object>& space);

 private:
  friend class Charge;
  [[noreturn]] static void out_of_steps();

  static constinit thread_local Budget* current_;
  int64_t steps_ = 0, held_ = 0;
  std::vector<std::weak_ptr<Object>> spaces_;
};

// Bytes that a value holds as long as it lives.
class Charge {
 public:
  explicit Charge(size_t bytes);
  ~Charge() {
    if (bytes_ && Budget::current_) Budget::current_->held_ -= static_cast<int64_t>(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  size_t bytes_ = 0;
};

// How deep this thread is in values within values, while it writes or compares them. Throws RenderError
// beyond kDeepestValue, as Python does, and where its stack ends.
class ValueDepth {
 public:
  ValueDepth();
  ~ValueDepth() { depth_--; }
  ValueDepth(const ValueDepth&) = delete;
  ValueDepth& operator=(const ValueDepth&) = delete;

 private:
  static constinit thread_local int depth_;
};

// Whether this thread's stack is nearly used up.
bool stack_is_short();

}  // namespace trainer::jinja
