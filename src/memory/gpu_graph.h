// CUDA graphs: work of a GPU that is recorded once and then started as one. A start takes the host about 0.1
// ms, in place of some 10 us for each kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace trainer {

class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  // Starts the work on the current stream, with the kernels, addresses and numbers of the recording.
  virtual void start() const = 0;
};

using GpuWork = std::function<std::vector<at::Tensor>()>;

struct RecordedWork {
  std::vector<at::Tensor> now;      // what the work returned when it ran
  std::vector<at::Tensor> later;    // where its results lie after each start of the graph
  std::unique_ptr<GpuGraph> graph;  // null: it was not recorded
  std::string problem;              // why not
};

// Returns the number of a new pool of memory.
c10::MempoolId_t new_graph_pool();

// Runs `work`, and then records it without running it. It must start the same kernels with the same addresses
// and numbers each time, and may not read from the device or from memory of the host. What it allocates while
// it is recorded stays allocated, and nothing else gets it, as long as the graph lives. Throws what `work`
// throws when it runs; a recording that fails, as for lack of memory, only leaves no graph.
//
// `pool`: graphs of one pool share their memory. So they must not run at once, and a start of one overwrites
// what others have left, but for tensors that still exist when it is recorded.
RecordedWork record_work(c10::Device device, const GpuWork& work, c10::MempoolId_t pool = new_graph_pool());

// What work changes where it lies, besides its results, and what puts that back to before the work.
struct Changes {
  std::vector<at::Tensor> tensors;
  std::function<void()> undo;
};

// Starts a recorded graph once, in place of the run that there was: its results and changes must be that
// run's, by sums and norms of pieces in fp64. Otherwise `recorded` is one without a graph, with the results
// of another run. `exact`: to the last bit; false: as nearly as work that adds in any order repeats itself.
void check_graph(RecordedWork& recorded, const GpuWork& work, const Changes& changes, bool exact = true);

// Returns whether work is being recorded, in this thread or another. Then nothing may be copied from the
// host.
bool is_recording();

// Returns whether work of so many products (weights x tokens that they meet) is recorded there: on a GPU that
// computes it about as fast as the host launches it, and where tests record. TRAINER_GRAPHS=on records all
// work, `launched` and `off` none. Once a recording has failed or gave other bits, none is.
bool records_work(c10::Device device, double products = 0);

// Returns whether work of so many products is laid out so that it repeats: as records_work(), but also with
// TRAINER_GRAPHS=launched, after a failure, and not if the launches are a small part of it.
bool repeats_work(c10::Device device, double products);

// Returns whether this process has started a graph.
bool has_started_graphs();

// Sets what record_work() does for CPU tensors from now on, as if nothing had failed; {}: nothing is recorded
// there.
using RecorderForTests = std::function<RecordedWork(const GpuWork& work)>;
void set_recorder_for_cpu(RecorderForTests recorder);

// While one lives, is_recording().
class Recording {
 public:
  Recording();
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

}  // namespace trainer
