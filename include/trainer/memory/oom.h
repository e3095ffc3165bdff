// When memory does not suffice: telling it from other errors, cleaning up, and doing the work again in
// smaller pieces. For any LibTorch program; docs/memory.md shows how, examples/adaptive_batch is one.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/core/Device.h>

#include "trainer/memory/batch_budget.h"

namespace trainer {

// Whether an exception stands for a lack of memory: LibTorch's OutOfMemoryError, the driver's own error,
// allocations that cuBLAS, cuDNN or NCCL could not make (told by their messages), std::bad_alloc.
bool is_oom(const std::exception& error);

// Whether the GPU is lost to this process (illegal access, failed assertion, hardware): every later call
// there fails too, and nothing on it can be saved.
bool is_device_fault(const std::exception& error);

// A lack of memory as it was met.
struct OutOfMemory {
  std::string message;                            // the first line of the exception's
  int64_t asked = -1, free = -1, allocated = -1;  // bytes; -1: not known

  // "1.20 MB asked for, 300 kB free, 17.7 GB allocated"
  std::string numbers() const;
};

// Runs `work`; nullopt when it ended well, what was lacking when memory did not suffice. Other exceptions are
// thrown on. Afterwards the exception is gone and with it what it kept alive, which inside a catch block is
// not so (pytorch#18853): clean up after this, not there.
std::optional<OutOfMemory> catch_oom(const std::function<void()>& work);

// After a failed attempt, when its tensors are gone: lets go of what autograd still queues (a failed backward
// on the CPU keeps up to 80 % of its memory until the next one) and of cached GPU memory. Does not throw for
// lack of memory.
void free_after_oom(c10::Device device);

struct RetryOptions {
  c10::Device device = c10::kCPU;
  int64_t max_retries = 10;
  std::function<void()> clean_up;  // drops what a failed attempt left, such as partial gradients
  // Told before each new attempt; `size` is the one to come (adaptive_batch and OomHandler).
  std::function<void(const OutOfMemory& lack, int64_t size)> on_retry;
};

// Runs `work` until memory suffices, cleaning up in between, at most 1 + max_retries times: for work that
// frees memory itself, or beside others that do. Returns its result. Throws trainer::OutOfMemoryError (exit
// code 5) when it never sufficed.
template <class Work>
auto retry_on_oom(Work&& work, const RetryOptions& options = {});

// Runs `work(size)` with size = initial, and with half of it, rounded down, for each lack of memory, until it
// ends well or 1 was not enough. Returns the size that was. `work` must leave nothing half done: it starts
// anew with each size. Throws trainer::OutOfMemoryError.
int64_t adaptive_batch(const std::function<void(int64_t size)>& work, int64_t initial,
                       const RetryOptions& options = {});

// adaptive_batch for a loop: remembers the size that was enough, and tries a larger one, at most `initial`,
// after `grow_after` calls without a lack of memory (0: never).
class OomHandler {
 public:
  explicit OomHandler(int64_t initial, RetryOptions options = {}, int64_t minimum = 1,
                      int64_t grow_after = 100);

  void run(const std::function<void(int64_t size)>& work);

  int64_t size() const;                                  // of the next call
  const BatchBudget& budget() const { return budget_; }  // to be saved with a checkpoint
  void set_budget(const BatchBudget& budget) { budget_ = budget; }

 private:
  int64_t initial_, minimum_, grow_after_;
  RetryOptions options_;
  BatchBudget budget_;
};

// Throws trainer::OutOfMemoryError: `lack`, and how often it was tried.
[[noreturn]] void give_up(const OutOfMemory& lack, int64_t retries);

template <class Work>
auto retry_on_oom(Work&& work, const RetryOptions& options) {
  using Result = std::invoke_result_t<Work>;
  std::conditional_t<std::is_void_v<Result>, std::optional<bool>, std::optional<Result>> result;
  for (int64_t retries = 0;; retries++) {
    const std::optional<OutOfMemory> lack = catch_oom([&] {
      if constexpr (std::is_void_v<Result>) {
        work();
      } else {
        result.emplace(work());
      }
    });
    if (!lack) break;
    if (options.clean_up) options.clean_up();
    free_after_oom(options.device);
    if (retries >= options.max_retries) give_up(*lack, retries);
    if (options.on_retry) options.on_retry(*lack, 0);
  }
  if constexpr (!std::is_void_v<Result>) return *std::move(result);
}

}  // namespace trainer
