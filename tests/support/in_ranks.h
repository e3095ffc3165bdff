// Several ranks in one process, each in a thread of its own.
#pragma once

#include <csignal>
#include <exception>
#include <functional>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "trainer/parallel/ranks.h"

#include "support/one_thread.h"

namespace trainer {

// A port that is free now.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

// Calls `work` on each of `count` ranks, and rethrows the error of the first that threw. `timeout`: how long
// a rank waits for another, in seconds. Each computes on one thread, as ranks of one machine that share few
// cores do. A rank that writes to one that has ended must not end the process: SIGPIPE is ignored from now
// on, as by `trainer train`.
inline void in_ranks(int64_t count, const std::function<void(const Ranks&)>& work, double timeout = 60) {
  std::signal(SIGPIPE, SIG_IGN);
  RankPlace place;
  place.count = count;
  place.address = "127.0.0.1";
  place.port = free_port();
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  const test::OneThread one_thread;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < count; rank++) {
    threads.emplace_back([&, place, rank]() mutable {
      const test::OneThread also_here;
      place.rank = place.local_rank = rank;
      try {
        work(Ranks(place, timeout));
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace trainer
