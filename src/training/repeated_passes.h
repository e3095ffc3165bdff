// The forward and backward passes of micro-batches, which a GPU can start as one (memory/gpu_graph.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/ops/linear_cross_entropy.h"
#include "trainer/optim/gradients.h"

#include "memory/gpu_graph.h"

namespace trainer {

class RepeatedPasses {
 public:
  // Computes the loss of a micro-batch, and adds the gradients of `seed` x loss to the sums.
  using Pass = std::function<LossSum(const MicroBatch& micro, const at::Tensor& seed)>;
  // What a pass depends on besides the micro-batch.
  using Form = std::vector<int64_t>;

  // `gradients`: where passes add to. They must outlive it. `ordered`: passes repeat their bits.
  RepeatedPasses(Gradients& gradients, at::Device device, bool ordered);

  // To be called before the passes of a step, when there are no gradients.
  void begin();
  // Runs a pass. Where passes of one form, on micro-batches of one form, have come several times, the next is
  // recorded, and those after it only start the graph. A pass may not depend on anything else on the host.
  // The first graph is checked, so it is recorded where a step begins and the sums are zeros.
  // The result is valid until the next call. What the graph holds counts as used memory.
  LossSum run(const MicroBatch& micro, const at::Tensor& seed, Form form, const Pass& pass);
  // Frees the graphs, as before other work that needs the memory. Gradients that there are stay.
  void forget();
  // Frees them for good, because there is no room for them. Returns whether there were any, or one was being
  // recorded.
  bool stop();

 private:
  struct Known {
    int64_t passes = 0;
    MicroBatch micro;  // what the graph reads
    at::Tensor seed;
    LossSum out;  // where its results lie
    std::unique_ptr<GpuGraph> graph;
  };

  LossSum record(Known& known, const MicroBatch& micro, const at::Tensor& seed, const Pass& pass);
  bool adds_to_sums() const;

  Gradients& gradients_;
  at::Device device_;
  c10::MempoolId_t pool_;
  std::map<Form, Known> known_;
  size_t graphs_ = 0;
  // All graphs add to these, from the first recording on. They begin a step with zeros.
  std::vector<at::Tensor> sums_;
  bool ordered_, begins_ = false, checked_ = false, stopped_ = false;
  bool recording_ = false;  // also after an error in a recording, whose memory was then missing
};

}  // namespace trainer
