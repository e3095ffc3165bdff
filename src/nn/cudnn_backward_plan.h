// cuDNN's backward pass of causal attention with sums in a fixed order, of one sample in bf16. LibTorch does
// not ask cuDNN for an order, so it is asked through NVIDIA's cudnn-frontend
// (docs.nvidia.com/deeplearning/cudnn/frontend), in the libcudnn that LibTorch has loaded. The build may lack
// its headers (cmake/CudnnFrontend.cmake). Plain types only: the headers take half a minute to compile.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace trainer {

// Queries, results and their gradients are [length, heads, head_dim]; keys and values have `groups` heads.
struct BackwardSizes {
  int64_t heads = 0, groups = 0, length = 0, head_dim = 0;
  int64_t q_row = 0, k_row = 0, v_row = 0;  // elements from one position to the next; otherwise it is dense
  double scale = 1.0;
  auto operator<=>(const BackwardSizes&) const = default;
};

// Where it reads and writes on the GPU. All but lse and workspace are bf16, at multiples of 16 bytes.
struct BackwardMemory {
  const void *q, *k, *v, *out, *grad;
  const void* lse;  // fp32 [heads, length]
  void *grad_q, *grad_k, *grad_v;
  void* workspace;
};

// What cuDNN has prepared for some sizes. That takes half a second: it compiles kernels.
class BackwardPlan {
 public:
  virtual ~BackwardPlan() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Starts on this stream of the plan's GPU, which is the current one. Throws std::runtime_error.
  virtual void run(const BackwardMemory& at, void* stream) const = 0;
};

// Returns whether the program was built with cudnn-frontend.
bool has_backward_plans();

// Returns why there are no plans: built without the headers, or no libcudnn is loaded; "" if there can be.
std::string why_no_backward_plans();

// Makes a plan for the current GPU, which has this number. Throws std::runtime_error with cuDNN's words if it
// takes no such sizes.
std::unique_ptr<BackwardPlan> make_backward_plan(const BackwardSizes& sizes, int gpu);

// Returns the workspace of a plan for a GPU that is not here. `description`: as cuDNN writes one, in JSON.
int64_t workspace_on(const std::string& description, const BackwardSizes& sizes);

}  // namespace trainer
