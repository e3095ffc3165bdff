// Work that waits for another process, with an end to the waiting.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "trainer/parallel/ranks.h"

namespace trainer {

// Returns what `work` returns, and throws what it throws; LostRank(late) if it is not done after `longest`.
// It then runs on in its thread until the process ends, so it must own all that it uses. Without a thread
// (ulimit -u) it is done here, however long it takes.
template <class Work>
auto within(std::chrono::milliseconds longest, const std::string& late, Work work) {
  const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Work>()>>(std::move(work));
  auto answer = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();
  }
  if (answer.wait_for(longest) != std::future_status::ready) throw LostRank(late);
  return answer.get();
}

}  // namespace trainer
