// CUDA graphs: work of a GPU that is recorded once and then started as one. A start takes the host about 0.1
// ms, in place of some 10 us for each kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace trainer {

class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  // Starts the work on the current stream, with the kernels, addresses and numbers of the recording.
  virtual void start() const = 0;
};

struct RecordedWork {
  at::Tensor now;                   // what the work returned when it ran
  at::Tensor later;                 // where its result lies after each start of the graph
  std::unique_ptr<GpuGraph> graph;  // null: it was not recorded
  std::string problem;              // why not
};

// Runs `work`, and then records it without running it. It must start the same kernels with the same addresses
// and numbers each time, and may not read from the device or from memory of the host. What it allocates while
// it is recorded stays allocated, and nothing else gets it, as long as the graph lives. Throws what `work`
// throws when it runs; a recording that fails, as for lack of memory, only leaves no graph.
RecordedWork record_work(c10::Device device, const std::function<at::Tensor()>& work);

// Returns whether work is recorded there: on GPUs, if TRAINER_GRAPHS is `on`, and where tests record.
bool records_work(c10::Device device);

// Sets what record_work() does for CPU tensors from now on; {}: nothing is recorded there.
using RecorderForTests = std::function<RecordedWork(const std::function<at::Tensor()>& work)>;
void set_recorder_for_cpu(RecorderForTests recorder);

}  // namespace trainer
