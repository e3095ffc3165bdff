#include "parallel/measure_sums.h"

#include <chrono>
#include <exception>
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trainer/parallel/tensor_exchange.h"

#include "parallel/gloo_group.h"

namespace trainer {
namespace {

constexpr int64_t kTwo = 2;
constexpr int kSums = 4;
constexpr std::chrono::seconds kPatience(20);

// The first sum, which also waits for the other rank, is not counted.
double rate_of(const GlooGroup& group) {
  const at::Tensor tensor = at::zeros({TensorExchange::kMessageBytes / 4});
  group.add_up(tensor);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSums; i++) group.add_up(tensor);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kSums * TensorExchange::kMessageBytes) / taken.count();
}

}  // namespace

double measure_sum_rate() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto measure = [&](int64_t rank) {
    return rate_of(GlooGroup(store, "measure", rank, kTwo, "127.0.0.1", kPatience, nullptr));
  };
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      measure(1);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  double rate = 0;
  std::exception_ptr own_failure;
  try {
    rate = measure(0);
  } catch (...) {
    own_failure = std::current_exception();
  }
  other.join();
  for (const std::exception_ptr& thrown : {own_failure, failure})
    if (thrown) std::rethrow_exception(thrown);
  return rate;
}

}  // namespace trainer
