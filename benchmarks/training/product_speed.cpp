// Times what can multiply on the CPU (training.cpu_products), in GFLOP/s.
//
//   product_speed [--threads N] [--rounds N] [--only fp32|bf16]
//
// For x [m, k] and a weight [n, k]: the layer's output, the gradient of x and the gradient of the weight. The
// ways take turns, a figure is the median of the rounds. Operands change from call to call, so that they come
// from memory as in a step.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "ops/cpu_products.h"
#include "ops/matmul.h"

namespace {

using namespace trainer;

struct Shape {
  int64_t m, k, n;
  double operations() const { return 2.0 * static_cast<double>(m * k * n); }
};

constexpr Shape kShapes[] = {{2048, 2048, 2048}, {1024, 512, 1024}, {811, 576, 1536}, {811, 1536, 576},
                             {512, 896, 4864},   {320, 512, 1024},  {128, 512, 512},  {811, 576, 16}};

// Operands of one product after another, 64 MB of them.
struct Operands {
  std::vector<at::Tensor> x, w, g;
  size_t next = 0;

  Operands(const Shape& shape, at::ScalarType type) {
    const int64_t bytes = (shape.m * shape.k + shape.n * shape.k + shape.m * shape.n) * elementSize(type);
    for (int64_t i = 0; i <= (64 << 20) / bytes; i++) {
      x.push_back(at::randn({shape.m, shape.k}).to(type));
      w.push_back(at::randn({shape.n, shape.k}).to(type));
      g.push_back(at::randn({shape.m, shape.n}).to(type));
    }
  }
  size_t turn() { return next = (next + 1) % x.size(); }
};

double seconds_of(const std::function<void()>& multiply, int repeat) {
  multiply();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; i++) multiply();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repeat;
}

// GFLOP/s of each way.
std::vector<double> rates(const Shape& shape, const std::vector<CpuProducts>& ways, int rounds,
                          const std::function<void()>& multiply) {
  const int repeat = std::max(1, static_cast<int>(2e8 / shape.operations()));
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = 0; round < rounds; round++) {
    for (size_t way = 0; way < ways.size(); way++) {
      set_cpu_products(ways[way]);
      seconds[way].push_back(seconds_of(multiply, repeat));
    }
  }
  std::vector<double> out;
  for (std::vector<double>& all : seconds) {
    std::ranges::sort(all);
    out.push_back(shape.operations() / all[all.size() / 2] / 1e9);
  }
  return out;
}

void measure(at::ScalarType type, int rounds) {
  const bool fp32 = type == at::kFloat;
  const std::vector<CpuProducts> ways =
      fp32 ? std::vector{CpuProducts::mkl, CpuProducts::onednn, CpuProducts::builtin}
           : std::vector{CpuProducts::onednn, CpuProducts::builtin};
  std::cout << (fp32 ? "fp32: mkl, onednn, builtin\n" : "bf16: onednn, builtin\n");
  for (const Shape& shape : kShapes) {
    Operands operands(shape, type);
    const std::function<void()> products[] = {
        [&, i = size_t{0}]() mutable { i = operands.turn(), product(operands.x[i], operands.w[i].t()); },
        [&, i = size_t{0}]() mutable { i = operands.turn(), product(operands.g[i], operands.w[i]); },
        [&, i = size_t{0}]() mutable { i = operands.turn(), product(operands.g[i].t(), operands.x[i]); }};
    std::cout << std::setw(5) << shape.m << std::setw(5) << shape.k << std::setw(5) << shape.n;
    for (const std::function<void()>& multiply : products) {
      std::cout << "  |";
      for (const double rate : rates(shape, ways, rounds, multiply))
        std::cout << std::setw(5) << static_cast<int>(rate);
    }
    std::cout << std::endl;
  }
}

}  // namespace

int main(int count, char** arguments) {
  int threads = 1, rounds = 15;
  std::string only;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i], value = arguments[i + 1];
    if (name == "--threads") threads = std::stoi(value);
    if (name == "--rounds") rounds = std::stoi(value);
    if (name == "--only") only = value;
  }
  const c10::InferenceMode no_gradients;
  at::set_num_threads(threads);
  std::cout << "m, k, n | output | gradient of x | gradient of the weight; GFLOP/s on " << threads
            << " threads\n";
  if (only != "bf16") measure(at::kFloat, rounds);
  if (only != "fp32") measure(at::kBFloat16, rounds);
}
