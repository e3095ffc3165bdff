#include "nn/cudnn_backward_plan.h"

#include <stdexcept>

#ifdef TRAINER_CUDNN_FRONTEND

#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

// Hidden, as libtorch_cuda.so has functions of another version under the same names. The functions of cuDNN
// and CUDA are looked up when called, so nothing links these libraries.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#pragma GCC visibility push(hidden)
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}
#pragma GCC visibility pop

namespace trainer {
namespace {

namespace fe = cudnn_frontend;

void check(const fe::error_t& error) {
  if (error.is_bad()) throw std::runtime_error("cudnn-frontend: " + error.err_msg);
}
void check(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(std::string("cuDNN: ") + what + ": " + fe::detail::get_error_string(status));
}

// Otherwise the frontend takes the first of libcudart.so.12 and .13 that the loader finds. Set when the
// library is loaded: later other threads may read the environment.
[[maybe_unused]] const int cudart_is_named =
    ::setenv("CUDNN_FRONTEND_CUDART_LIB_NAME",
             ("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), /*overwrite=*/0);

// Returns whether this process has loaded libcudnn, which is then used. It is not loaded here.
bool has_found_cudnn() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (fe::cudnn_dlhandle == nullptr) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
  return fe::cudnn_dlhandle != nullptr;
}

enum Place : int64_t { kQ = 1, kK, kV, kOut, kGrad, kLse, kGradQ, kGradK, kGradV };

// [1, heads, length, head_dim], in rows of `row` elements.
fe::graph::Tensor_attributes tensor(Place place, const BackwardSizes& sizes, int64_t heads, int64_t row) {
  return fe::graph::Tensor_attributes()
      .set_uid(place)
      .set_dim({1, heads, sizes.length, sizes.head_dim})
      .set_stride({sizes.length * row, sizes.head_dim, row, 1});
}

void add_backward(fe::graph::Graph& graph, const BackwardSizes& sizes) {
  constexpr int64_t hopper = 90;
  const int64_t q_row = sizes.heads * sizes.head_dim, k_row = sizes.groups * sizes.head_dim;
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(hopper)
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);  // plans live until the process ends
  const auto lse = fe::graph::Tensor_attributes()
                       .set_uid(kLse)
                       .set_dim({1, sizes.heads, sizes.length, 1})
                       .set_stride({sizes.heads * sizes.length, sizes.length, 1, 1})
                       .set_data_type(fe::DataType_t::FLOAT);
  const auto options = fe::graph::SDPA_backward_attributes()
                           .set_name("attention_backward")
                           .set_causal_mask(true)
                           .set_attn_scale(static_cast<float>(sizes.scale))
                           .set_deterministic_algorithm(true);
  const auto [grad_q, grad_k, grad_v] =
      graph.sdpa_backward(graph.tensor(tensor(kQ, sizes, sizes.heads, sizes.q_row)),
                          graph.tensor(tensor(kK, sizes, sizes.groups, sizes.k_row)),
                          graph.tensor(tensor(kV, sizes, sizes.groups, sizes.v_row)),
                          graph.tensor(tensor(kOut, sizes, sizes.heads, q_row)),
                          graph.tensor(tensor(kGrad, sizes, sizes.heads, q_row)), graph.tensor(lse), options);
  const auto give = [&](const auto& result, Place place, int64_t heads, int64_t row) {
    const auto as = tensor(place, sizes, heads, row);
    result->set_output(true).set_uid(place).set_dim(as.get_dim()).set_stride(as.get_stride());
  };
  give(grad_q, kGradQ, sizes.heads, q_row);
  give(grad_k, kGradK, sizes.groups, k_row);
  give(grad_v, kGradV, sizes.groups, k_row);
}

int64_t workspace_of(const fe::graph::Graph& graph) {
  int64_t bytes = 0;
  check(graph.get_workspace_size(bytes));
  return bytes;
}

// cuDNN's handle of a GPU: one call uses it at a time. Never destroyed, as CUDA may end before.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t cudnn = nullptr;
};

Handle& handle_of(int gpu) {
  static auto& handles = *new std::map<int, Handle>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Handle& handle = handles[gpu];
  if (handle.cudnn == nullptr) check(fe::detail::create_handle(&handle.cudnn), "cudnnCreate");
  return handle;
}

class PlanOfFrontend final : public BackwardPlan {
 public:
  PlanOfFrontend(const BackwardSizes& sizes, int gpu) : handle_(handle_of(gpu)) {
    const std::lock_guard lock(handle_.mutex);
    add_backward(graph_, sizes);
    check(graph_.build(handle_.cudnn, {fe::HeurMode_t::A}));
    bytes_ = workspace_of(graph_);
  }

  int64_t workspace_bytes() const override { return bytes_; }

  void run(const BackwardMemory& at, void* stream) const override {
    const auto input = [](const void* memory) { return const_cast<void*>(memory); };
    std::unordered_map<int64_t, void*> memory{
        {kQ, input(at.q)},     {kK, input(at.k)},       {kV, input(at.v)},
        {kOut, input(at.out)}, {kGrad, input(at.grad)}, {kLse, input(at.lse)},
        {kGradQ, at.grad_q},   {kGradK, at.grad_k},     {kGradV, at.grad_v}};
    const std::lock_guard lock(handle_.mutex);
    check(fe::detail::set_stream(handle_.cudnn, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
    check(graph_.execute(handle_.cudnn, memory, at.workspace));
  }

 private:
  Handle& handle_;
  fe::graph::Graph graph_;
  int64_t bytes_ = 0;
};

}  // namespace

bool has_backward_plans() { return true; }

std::string why_no_backward_plans() { return has_found_cudnn() ? "" : "libcudnn.so.9 is not loaded"; }

std::unique_ptr<BackwardPlan> make_backward_plan(const BackwardSizes& sizes, int gpu) {
  if (!has_found_cudnn()) throw std::runtime_error(why_no_backward_plans());
  return std::make_unique<PlanOfFrontend>(sizes, gpu);
}

int64_t workspace_on(const std::string& description, const BackwardSizes& sizes) {
  if (!has_found_cudnn()) throw std::runtime_error(why_no_backward_plans());
  const auto device = std::make_shared<fe::DeviceProperties>();
  check(device->deserialize({description.begin(), description.end()}));
  fe::graph::Graph graph;
  add_backward(graph, sizes);
  graph.set_device_properties(device);
  check(graph.build({fe::HeurMode_t::A}));
  return workspace_of(graph);
}

}  // namespace trainer

#else

namespace trainer {
namespace {

constexpr auto kLeftOut = "this program was built without the headers of cudnn-frontend";

}  // namespace

bool has_backward_plans() { return false; }

std::string why_no_backward_plans() { return kLeftOut; }

std::unique_ptr<BackwardPlan> make_backward_plan(const BackwardSizes&, int) {
  throw std::runtime_error(kLeftOut);
}

int64_t workspace_on(const std::string&, const BackwardSizes&) { throw std::runtime_error(kLeftOut); }

}  // namespace trainer

#endif
