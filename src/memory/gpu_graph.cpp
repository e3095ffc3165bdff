#include "memory/gpu_graph.h"

#include <atomic>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "trainer/memory/device_memory.h"

#include "base/dynamic_library.h"
#include "base/switches.h"
#include "device/cuda_driver.h"
#include "device/known_gpu.h"
#include "memory/gpu_allocator.h"

namespace trainer {
namespace {

std::atomic<int> recordings = 0;
std::atomic<bool> has_failed = false, has_started = false;

constexpr int kOnlyThisThread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: others may go on with other work

RecorderForTests& recorder_for_cpu() {
  static RecorderForTests instance;
  return instance;
}

template <class... Arguments>
int driver_call(const char* name, Arguments... arguments) {
  return cuda_library().call(kNoDriverFunction, name, arguments...);
}

c10::impl::VirtualGuardImpl gpus() { return c10::impl::VirtualGuardImpl(c10::kCUDA); }

bool are_graphs(std::string_view value) { return switch_is(Switch::graphs, value); }

// A pass forward and backward of so many products takes some 0.15 s on an H100, by arithmetic the time of its
// launches.
bool takes_as_long_to_launch(c10::Device device, double products) {
  constexpr double clocks = 37e6;  // of products alone
  const CudaDevice* const gpu = known_gpu(device);
  return gpu != nullptr && products <= clocks * static_cast<double>(products_per_clock(*gpu));
}

// Sums and norms, fp64, of pieces of each tensor: a whole one in fp64 might not fit.
at::Tensor digest_of(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& changed) {
  constexpr int64_t piece = 1 << 22;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> numbers;
  for (const auto* tensors : {&results, &changed}) {
    for (const at::Tensor& tensor : *tensors) {
      if (!tensor.defined()) continue;
      for (const at::Tensor& part : tensor.reshape(-1).split(piece)) {
        const at::Tensor values = part.to(at::kDouble);
        numbers.push_back(values.sum());
        numbers.push_back(values.norm());
      }
    }
  }
  return at::stack(numbers);
}

// `exact`: the bits, which are equal of NaN too.
bool agree(const at::Tensor& a, const at::Tensor& b, bool exact) {
  constexpr double of_bf16 = 1e-2;
  if (exact) return a.view(at::kLong).equal(b.view(at::kLong));
  return a.allclose(b, of_bf16, of_bf16 * b.abs().max().item<double>(), /*equal_nan=*/true);
}

// A stream of its own for recordings: work on the default stream cannot be recorded. It is always the same
// one, because LibTorch keeps a workspace for products for each.
c10::Stream recording_stream(c10::Device device) {
  static thread_local std::map<c10::DeviceIndex, c10::Stream> streams;
  const auto found = streams.find(device.index());
  if (found != streams.end()) return found->second;
  return streams.emplace(device.index(), gpus().getStreamFromGlobalPool(device)).first->second;
}

// While it lives, what is allocated on a stream comes from a pool of its own.
class AllocatingToPool {
 public:
  AllocatingToPool(c10::Device device, c10::MempoolId_t pool, void* stream) : device_(device), pool_(pool) {
    gpu_allocator().beginAllocateToPool(device.index(), pool,
                                        [stream](CUstream_st* other) { return other == stream; });
  }
  ~AllocatingToPool() { gpu_allocator().endAllocateToPool(device_.index(), pool_); }
  AllocatingToPool(const AllocatingToPool&) = delete;
  AllocatingToPool& operator=(const AllocatingToPool&) = delete;

 private:
  c10::Device device_;
  c10::MempoolId_t pool_;
};

class CudaGraph final : public GpuGraph {
 public:
  CudaGraph(c10::Device device, c10::MempoolId_t pool) : device_(device), pool_(pool) {}
  ~CudaGraph() override {
    try {
      gpus().synchronizeStream(gpus().getStream(device_));  // it may still run
    } catch (const std::exception&) {  // a fault of the device, which the next call reports
    }
    if (ready_ != nullptr) driver_call("cuGraphExecDestroy", ready_);
    if (has_pool_) gpu_allocator().releasePool(device_.index(), pool_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Records on `stream`, which is the current one. Returns what went wrong, or "".
  std::string record(const c10::Stream& stream, const GpuWork& work, std::vector<at::Tensor>& later) {
    void *const native = stream.native_handle(), *graph = nullptr;
    std::string problem, problem_of_work;
    try {
      const Recording recording;
      const AllocatingToPool allocating(device_, pool_, native);
      has_pool_ = true;
      problem = driver_problem(driver_call("cuStreamBeginCapture_v2", native, kOnlyThisThread), "recording");
      if (!problem.empty()) return problem;
      try {
        later = work();
      } catch (const std::exception& error) {
        problem_of_work = error.what();
      }
      problem = driver_problem(driver_call("cuStreamEndCapture", native, &graph), "end of a recording");
    } catch (const std::exception& error) {
      problem = error.what();
    }
    if (!problem_of_work.empty()) problem = problem_of_work;
    if (problem.empty())
      problem = driver_problem(driver_call("cuGraphInstantiateWithFlags", &ready_, graph, 0ULL),
                               "a recorded graph");
    if (graph != nullptr) driver_call("cuGraphDestroy", graph);
    if (!problem.empty()) later.clear();
    return problem;
  }

  void start() const override {
    has_started = true;
    const int code = driver_call("cuGraphLaunch", ready_, gpus().getStream(device_).native_handle());
    if (code != 0)
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, code,
                                  driver_problem(code, "starting a graph"));
  }

 private:
  c10::Device device_;
  c10::MempoolId_t pool_;
  bool has_pool_ = false;
  void* ready_ = nullptr;
};

// While it lives, work goes to another stream than the current one, after what that has so far; later work of
// that one waits for it.
class OnStream {
 public:
  OnStream(const c10::Stream& before, const c10::Stream& own) : before_(before), own_(own), guard_(own) {
    let_wait(own_, before_);
  }
  ~OnStream() {
    try {
      let_wait(before_, own_);
    } catch (const std::exception&) {  // a fault of the device, which the next call reports
    }
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  // `later` begins when `first` has done the work that it has so far.
  static void let_wait(const c10::Stream& later, const c10::Stream& first) {
    c10::Event event(c10::kCUDA);
    event.record(first);
    event.block(later);
  }

  c10::Stream before_, own_;
  c10::StreamGuard guard_;
};

}  // namespace

c10::MempoolId_t new_graph_pool() {
  static std::atomic<c10::CaptureId_t> pools{1};
  return {0, pools++};  // as LibTorch numbers those that are asked for
}

namespace {

RecordedWork record_on_gpu(c10::Device device, const GpuWork& work, c10::MempoolId_t pool) {
  const c10::Stream main = gpus().getStream(device), own = recording_stream(device);
  RecordedWork recorded;
  auto graph = std::make_unique<CudaGraph>(device, pool);
  {
    const OnStream on_own(main, own);
    empty_cache(device);  // what is kept for the other stream
    recorded.now = work();
    for (const at::Tensor& result : recorded.now)
      if (result.defined()) result.record_stream(main);
    empty_cache(device);  // the pool cannot take what the allocator keeps for others
    recorded.problem = graph->record(own, work, recorded.later);
  }
  if (recorded.problem.empty()) recorded.graph = std::move(graph);
  return recorded;
}

}  // namespace

RecordedWork record_work(c10::Device device, const GpuWork& work, c10::MempoolId_t pool) {
  RecordedWork recorded = device.is_cuda() ? record_on_gpu(device, work, pool) : recorder_for_cpu()(work);
  has_failed = has_failed || recorded.graph == nullptr;
  return recorded;
}

void check_graph(RecordedWork& recorded, const GpuWork& work, const Changes& changes, bool exact) {
  const at::Tensor launched = digest_of(recorded.now, changes.tensors);
  changes.undo();
  recorded.graph->start();
  if (agree(digest_of(recorded.later, changes.tensors), launched, exact)) return;
  has_failed = true;
  changes.undo();
  recorded = {work(), {}, nullptr, "a graph gives other numbers than the same kernels without it"};
}

bool records_work(c10::Device device, double products) {
  if (has_failed) return false;
  if (device.is_cpu()) return static_cast<bool>(recorder_for_cpu());
  return device.is_cuda() &&
         (are_graphs("on") || (are_graphs("") && takes_as_long_to_launch(device, products)));
}

bool repeats_work(c10::Device device, double products) {
  if (device.is_cpu()) return static_cast<bool>(recorder_for_cpu());
  return device.is_cuda() && !are_graphs("off") && takes_as_long_to_launch(device, products);
}

bool has_started_graphs() { return has_started; }

bool is_recording() { return recordings > 0; }

Recording::Recording() { recordings++; }
Recording::~Recording() { recordings--; }

void set_recorder_for_cpu(RecorderForTests recorder) {
  recorder_for_cpu() = std::move(recorder);
  has_failed = false;
}

}  // namespace trainer
