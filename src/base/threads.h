// Starts groups of threads, as many as the system allows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trainer {

// Starts up to `count` threads; thread i (from 0) calls work(i). `work` must not throw and is copied. Returns
// how many threads were started: fewer than `count` when the system allows no more (ulimit -u, pids.max of a
// container, memory).
int64_t start_threads(std::vector<std::jthread>& threads, int64_t count,
                      const std::function<void(int64_t)>& work);

// Logs the warning "training.num_workers: the system gives 3 of 64 threads (ulimit -u); ...", once per key.
void warn_of_fewer_threads(const std::string& key, int64_t given, int64_t wanted);

// require_threads() throws ConfigError when the system does not allow `count` threads at once. `key`: the
// configuration key that asks for them. throw_no_threads() throws that error.
void require_threads(int64_t count, const std::string& key);
[[noreturn]] void throw_no_threads(const std::string& key, int64_t wanted, int64_t given = 0);

}  // namespace trainer
