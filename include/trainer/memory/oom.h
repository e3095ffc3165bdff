// Handles out-of-memory errors: tells them from other errors, cleans up, and repeats the work in smaller
// pieces. For any LibTorch program; docs/dev/cpp.md shows how, and examples/adaptive_batch is an example.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/core/Device.h>

#include "trainer/base/error.h"
#include "trainer/memory/batch_budget.h"

namespace trainer {

// Returns whether an exception means out of memory: LibTorch's OutOfMemoryError, the driver's own error,
// failed allocations of cuBLAS, cuDNN or NCCL (recognised by their messages), std::bad_alloc. Some errors of
// cuBLAS and cuDNN mean that only if the GPU is nearly full, less than 512 MB free: otherwise the library is
// broken, and trying again would not help.
bool is_oom(const std::exception& error);

// The same, with a function that returns the bytes free on the GPU; nullopt: not known.
using FreeGpuMemory = std::function<std::optional<int64_t>()>;
bool is_oom(const std::exception& error, const FreeGpuMemory& free_gpu_memory);

// Returns whether this process can no longer use the GPU (illegal access, failed assertion, hardware error):
// every later call fails too, and nothing on the GPU can be saved.
bool is_device_fault(const std::exception& error);

// The numbers of an out-of-memory error.
struct OutOfMemory {
  std::string message;                            // one line, in words of this program
  int64_t asked = -1, free = -1, allocated = -1;  // bytes; -1: not known

  // "1.20 MB asked for, 300 kB free, 17.7 GB allocated"
  std::string numbers() const;
};

// Returns what is_oom() has found, in the same words.
std::string oom_message(const std::exception& error);

// Runs `work`. Returns nullopt if it succeeded, or the error's numbers if it ran out of memory. Other
// exceptions pass through. When this returns, the exception is gone, and with it what it kept alive. Inside a
// catch block both still exist (pytorch#18853): so clean up after this call, not in a catch block.
std::optional<OutOfMemory> catch_oom(const std::function<void()>& work);

// Call after a failed attempt, when its tensors are gone. Frees what autograd still has in its queue (a
// failed backward on the CPU keeps up to 80 % of its memory until the next one) and cached GPU memory. Does
// not throw when it runs out of memory itself.
void free_after_oom(c10::Device device);

// The loop around work that may run out of memory. Every retry of this library goes through it.
//
//   OomLoop attempts(device, [&] { gradients.clear(); }, [&](const OutOfMemory& oom) { batch_size /= 2; });
//   while (attempts.next()) {
//     try {
//       work(batch_size);
//     } catch (const std::exception& error) {
//       attempts.failed(error);
//     }
//   }
class OomLoop {
 public:
  // After a failed attempt, when its exception is gone, next() calls `clean_up`, which drops what the attempt
  // left, such as partial gradients, then free_after_oom(device), then `recover`. `recover` makes the next
  // attempt need less, or throws when nothing is left to try. clean_up may be empty.
  using Recover = std::function<void(const OutOfMemory& oom)>;
  OomLoop(c10::Device device, std::function<void()> clean_up, Recover recover);

  // Returns whether to attempt the work: the first time, and after each failed attempt.
  bool next();
  // To be called in the handler of an attempt's exception. Throws it on if it does not mean out of memory.
  void failed(const std::exception& error);
  // The same for an attempt that had a loop of its own, which gave up with this error and has cleaned up.
  void gave_up(const OutOfMemoryError& error);

 private:
  enum class State { not_begun, failed, gave_up, done };

  c10::Device device_;
  std::function<void()> clean_up_;
  Recover recover_;
  State state_ = State::not_begun;
  OutOfMemory oom_;
};

struct RetryOptions {
  c10::Device device = c10::kCPU;
  int64_t max_retries = 10;
  std::function<void()> clean_up;  // drops what a failed attempt left, such as partial gradients
  // Called before each new attempt; `size` is the size of that attempt (adaptive_batch and OomHandler).
  std::function<void(const OutOfMemory& oom, int64_t size)> on_retry;
};

// Runs `work` until it no longer runs out of memory, at most 1 + max_retries times, and cleans up in between:
// for work that frees memory itself, or next to other work that does. Returns the result of `work`. Throws
// trainer::OutOfMemoryError (exit code 5) if every attempt ran out of memory.
template <class Work>
auto retry_on_oom(Work&& work, const RetryOptions& options = {});

// Runs `work(size)` with size = initial. Each time it runs out of memory, halves the size (rounding down),
// until the work succeeds or size 1 failed too. Returns the size that succeeded. `work` must leave nothing
// half done: it starts from the beginning with each size. Throws trainer::OutOfMemoryError if no size
// succeeded.
int64_t adaptive_batch(const std::function<void(int64_t size)>& work, int64_t initial,
                       const RetryOptions& options = {});

// adaptive_batch for a loop: remembers the size that succeeded, and tries a larger one, at most `initial`,
// after `grow_after` calls that did not run out of memory (0: never).
class OomHandler {
 public:
  explicit OomHandler(int64_t initial, RetryOptions options = {}, int64_t minimum = 1,
                      int64_t grow_after = 100);

  void run(const std::function<void(int64_t size)>& work);

  int64_t size() const;                                  // size of the next call
  const BatchBudget& budget() const { return budget_; }  // to be saved with a checkpoint
  void set_budget(const BatchBudget& budget) { budget_ = budget; }

 private:
  int64_t initial_, minimum_, grow_after_;
  RetryOptions options_;
  BatchBudget budget_;
};

// Throws trainer::OutOfMemoryError with the numbers of the last attempt and the number of retries.
[[noreturn]] void give_up(const OutOfMemory& oom, int64_t retries);

// Returns the loop of retry_on_oom().
OomLoop same_again(const RetryOptions& options);

template <class Work>
auto retry_on_oom(Work&& work, const RetryOptions& options) {
  using Result = std::invoke_result_t<Work>;
  std::conditional_t<std::is_void_v<Result>, std::optional<bool>, std::optional<Result>> result;
  OomLoop attempts = same_again(options);
  while (attempts.next()) {
    try {
      if constexpr (std::is_void_v<Result>) {
        work();
      } else {
        result.emplace(work());
      }
    } catch (const std::exception& error) {
      attempts.failed(error);
    }
  }
  if constexpr (!std::is_void_v<Result>) return *std::move(result);
}

}  // namespace trainer
