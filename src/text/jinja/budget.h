// The time and memory that one rendering of a template may use. Templates of real models stay far below these
// limits, even for conversations of many megabytes. Only a template that grows without bounds reaches them.
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

// The budget of the rendering that this thread works on. Without a rendering, nothing is counted. It belongs
// to the thread because values, texts and operators are made everywhere and know of no rendering.
//
// Copies of values and texts, comparisons, and the memory of lists, dicts and texts are counted where these
// types are defined. Code that uses them counts only its other work, such as a search through bytes.
class Budget {
 public:
  static constexpr int64_t kMostSteps = 300'000'000;       // up to 5 nanoseconds each
  static constexpr int64_t kBytesPerStep = 8;              // copied or searched
  static constexpr int64_t kMostBytes = int64_t{1} << 30;  // held at one time
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
  // Checks that there is room for this many bytes.
  static void require_room(size_t bytes);
  // Adds bytes to what is held, and takes them off again.
  static void hold(size_t bytes) {
    if (!current_) return;
    require_room(bytes);
    current_->held_ += static_cast<int64_t>(bytes);
  }
  static void release(size_t bytes) {
    if (current_) current_->held_ -= static_cast<int64_t>(bytes);
  }

  // A namespace is the only value that can contain itself. It is emptied at the end of the rendering.
  static void keep(const std::shared_ptr<Object>& space);

 private:
  [[noreturn]] static void out_of_steps();

  static constinit thread_local Budget* current_;
  int64_t steps_ = 0, held_ = 0;
  std::vector<std::weak_ptr<Object>> spaces_;
};

// Bytes that an object holds for as long as it lives.
class Charge {
 public:
  Charge() = default;
  explicit Charge(size_t bytes) {
    Budget::spend_bytes(bytes);
    set(bytes);
  }
  Charge(Charge&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (bytes_) Budget::release(bytes_);
  }
  void set(size_t bytes) {
    if (bytes == bytes_) return;
    Budget::hold(bytes);
    Budget::release(bytes_);
    bytes_ = bytes;
  }

 private:
  size_t bytes_ = 0;
};

// Counts the memory of a container.
template <class T>
struct CountingAllocator {
  using value_type = T;
  CountingAllocator() = default;
  template <class U>
  CountingAllocator(const CountingAllocator<U>&) {}
  T* allocate(size_t count) {
    Budget::spend_bytes(count * sizeof(T));
    Budget::hold(count * sizeof(T));
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* memory, size_t count) {
    Budget::release(count * sizeof(T));
    std::allocator<T>().deallocate(memory, count);
  }
  bool operator==(const CountingAllocator&) const { return true; }
};
template <class T>
using CountedVector = std::vector<T, CountingAllocator<T>>;

// Counts how deep this thread is in nested values while it writes or compares them. Throws RenderError beyond
// kDeepestValue, as Python does, and where its stack ends.
class ValueDepth {
 public:
  ValueDepth();
  ~ValueDepth() { depth_--; }
  ValueDepth(const ValueDepth&) = delete;
  ValueDepth& operator=(const ValueDepth&) = delete;

 private:
  static constinit thread_local int depth_;
};

// Returns whether this thread's stack is nearly used up.
bool stack_is_short();

}  // namespace trainer::jinja
