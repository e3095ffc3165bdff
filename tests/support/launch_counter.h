// Counts what a step asks of a GPU. The step runs on `meta` for a GPU as its target, as a memory plan does,
// so no GPU is needed: LibTorch's dispatcher reports its operators, and the kernels of this project report
// their launches.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace trainer {

// What a card does in a second. The shares of its peaks are what is commonly reached with large operands.
struct Card {
  const char* name;
  double products;   // operations of bf16 products
  double attention;  // of fused attention
  double bytes;      // to and from its memory
};
constexpr std::array<Card, 2> kCards{{{"H100 SXM", 0.69 * 989e12, 0.33 * 989e12, 0.80 * 3.35e12},
                                      {"RTX 4090", 0.90 * 165e12, 0.60 * 165e12, 0.85 * 1.008e12}}};

// One of this project's operators: what its calls read and write, and the kernels that they start.
struct OperatorCounts {
  int64_t calls = 0, bytes = 0;
  std::set<std::string> kernels;  // on a CPU it has none
};

// Numbers of launches. LibTorch's products are one each, although cuBLAS may take two for some shapes.
struct LaunchCounts {
  int64_t products = 0;
  int64_t others = 0;           // kernels that are no products
  int64_t attention = 0;        // of them, in LibTorch's attention
  int64_t blocking_copies = 0;  // from the host, which the host waits for
  // Of the host alone: LibTorch's views and allocations outside of its other operators, and the nodes of
  // autograd that backward runs.
  int64_t views = 0, allocations = 0, nodes = 0;
  int64_t bytes = 0;                            // read and written by operators
  std::array<double, kCards.size()> seconds{};  // of operators, the slower of computing and moving for each
  std::map<std::string, int64_t> by_name;
  std::map<std::string, OperatorCounts> operators;  // by their names

  LaunchCounts& operator+=(const LaunchCounts& more);
  // Of two steps that differ in a number of layers: what one layer takes.
  LaunchCounts per_layer(const LaunchCounts& fewer, int64_t layers) const;
};

struct StepLaunches {
  LaunchCounts forward, backward;  // backward: with what it computes once more
};

class LaunchCounter {
 public:
  LaunchCounter();
  ~LaunchCounter();
  LaunchCounter(const LaunchCounter&) = delete;
  LaunchCounter& operator=(const LaunchCounter&) = delete;

  // Returns what was counted since the last call.
  StepLaunches take();

 private:
  struct Callbacks;
  std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace trainer
