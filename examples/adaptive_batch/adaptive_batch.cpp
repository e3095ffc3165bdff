// Trains a torch::nn model within a memory limit. If the batch does not fit at once, it goes through the
// model in as many parts as needed, and the update is the same.
//
//   adaptive_batch [LIMIT]      (8MB)
#include <algorithm>
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include "trainer/base/error.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"

int main(int argc, char** argv) {
  constexpr int64_t kRows = 4096;
  try {
    trainer::install_host_allocator();
    trainer::MemoryLimit::parse(argc > 1 ? argv[1] : "8MB").apply(c10::kCPU);

    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(32, 256), torch::nn::GELU(), torch::nn::Linear(256, 1));
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
    const at::Tensor inputs = at::randn({kRows, 32}), targets = inputs.sum(1, true).tanh();

    trainer::RetryOptions options;
    options.clean_up = [&] { model->zero_grad(); };
    options.on_retry = [](const trainer::OutOfMemory& oom, int64_t rows) {
      std::cout << "out of memory: " << oom.numbers() << "; now " << rows << " rows at once" << std::endl;
    };
    trainer::OomHandler memory(kRows, options);
    for (int step = 1; step <= 20; step++) {
      double loss = 0;
      memory.run([&](int64_t rows) {  // starts from the beginning at each attempt
        loss = 0;
        model->zero_grad();
        for (int64_t first = 0; first < kRows; first += rows) {
          const int64_t count = std::min(rows, kRows - first);
          const at::Tensor error =
              model->forward(inputs.narrow(0, first, count)) - targets.narrow(0, first, count);
          const at::Tensor part = error.square().sum() / kRows;
          part.backward();
          loss += part.item<double>();
        }
      });
      optimizer.step();
      std::cout << "step " << step << " loss " << loss << " rows " << memory.size() << std::endl;
    }
  } catch (const trainer::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());  // docs/errors.md
  } catch (const std::exception& error) {
    if (!trainer::is_oom(error)) throw;
    std::cerr << "the model and its data do not fit\n";
    return static_cast<int>(trainer::ExitCode::out_of_memory);
  }
}
