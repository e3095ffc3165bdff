// The steps of a generation, which a GPU can start as one (memory/gpu_graph.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "memory/gpu_graph.h"

namespace trainer {

class RepeatedStep {
 public:
  // tokens [rows] -> logits
  using Step = std::function<at::Tensor(const at::Tensor& tokens)>;
  // What a step's kernels, addresses and numbers depend on: numbers of rows, addresses of tables.
  using Form = std::vector<int64_t>;

  // Runs a step. Where several in a row had one form, the next is recorded, and those after it only start the
  // graph; they must be the same but for the tokens and what lies on the device. `table`: what a step
  // changes, besides the keys and values that it writes. The result is valid until the next call.
  at::Tensor run(const Form& form, const at::Tensor& tokens, const at::Tensor& table, const Step& step);

 private:
  Form form_;
  int64_t steps_ = 0;  // of this form
  bool checked_ = false;
  at::Tensor tokens_, logits_;  // of the graph
  std::unique_ptr<GpuGraph> graph_;
};

}  // namespace trainer
