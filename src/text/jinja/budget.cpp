#include "text/jinja/budget.h"

#include <cstdint>
#include <pthread.h>

#include "trainer/base/strings.h"

#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

// Enough for all that runs between two checks of the stack.
constexpr size_t kReserve = 160 << 10;

uintptr_t stack_end() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uintptr_t>(lowest);
}

}  // namespace

constinit thread_local Budget* Budget::current_ = nullptr;
constinit thread_local int ValueDepth::depth_ = 0;

Budget::Budget() { current_ = this; }

Budget::~Budget() {
  for (const auto& weak : spaces_) {
    if (const auto space = weak.lock()) space->clear();
  }
  current_ = nullptr;
}

void Budget::out_of_steps() {
  throw OutOfBudget(concat("more than ", grouped(kMostSteps), " steps for one conversation"));
}

void Budget::require_room(size_t bytes) {
  if (bytes > static_cast<size_t>(kMostBytes) ||
      (current_ && current_->held_ + static_cast<int64_t>(bytes) > kMostBytes))
    throw OutOfBudget(concat("more than ", kMostBytes >> 20, " MB for its values"));
}

void Budget::keep(const std::shared_ptr<Object>& space) {
  if (current_) current_->spaces_.push_back(space);
}

ValueDepth::ValueDepth() {
  if (depth_ >= Budget::kDeepestValue || stack_is_short())
    throw RenderError("values are nested too deeply in one another");
  depth_++;
}

bool stack_is_short() {
  static thread_local const uintptr_t end = stack_end();
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < end + kReserve;
}

}  // namespace trainer::jinja
