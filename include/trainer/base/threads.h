// Threads that work together, as many as the system gives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trainer {

// Starts up to `count` threads, each of which calls work(i) with its own i from 0; `work` must not throw and
// is copied. Returns how many were started: fewer where the system gives no more (ulimit -u, a container's
// pids.max, memory).
int64_t start_threads(std::vector<std::jthread>& threads, int64_t count,
                      const std::function<void(int64_t)>& work);

// "training.num_workers: the system gives 3 of 64 threads (ulimit -u); ...", once for each key.
void warn_of_fewer_threads(const std::string& key, int64_t given, int64_t wanted);

// Throws ConfigError where the system does not give so many threads at once. `key`: what asks for them.
void require_threads(int64_t count, const std::string& key);
[[noreturn]] void throw_no_threads(const std::string& key, int64_t wanted, int64_t given = 0);

}  // namespace trainer
