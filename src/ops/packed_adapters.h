// The LoRA matrices of several layers with the same input as two matrices, so that a GPU multiplies them with
// two products instead of two a layer.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

struct PackedAdapters {
  at::Tensor a;                                   // [all ranks, in]
  at::Tensor b;                                   // [all outputs, all ranks], zero but for a block a layer
  std::vector<int64_t> first_rank, first_output;  // one entry per layer, then the total

  int64_t ranks() const { return first_rank.back(); }
  int64_t outputs() const { return first_output.back(); }
  // Layer i's columns of x [rows, all ranks] and of y [rows, all outputs], its rows of `a` and its block of
  // `b`.
  at::Tensor ranks_of(const at::Tensor& x, size_t i) const;
  at::Tensor outputs_of(const at::Tensor& y, size_t i) const;
  at::Tensor a_of(size_t i) const;
  at::Tensor b_of(size_t i) const;
  int64_t rank(size_t i) const { return first_rank[i + 1] - first_rank[i]; }
  // Returns whether layer i has an adapter; one of rank 0 stands for none.
  bool has(size_t i) const { return rank(i) > 0; }
};

// At most this many layers are packed together.
constexpr size_t kMostPacked = 8;

// Returns whether matrices are packed for products in `type` on this device: on a GPU, in fp32 and bf16.
bool packs_adapters(at::Device device, at::ScalarType type);

// a[i] [r_i, in] and b[i] [out_i, r_i], fp32 and contiguous -> in `type`. One launch.
PackedAdapters pack_adapters(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                             at::ScalarType type);

// The adapters of layers with the same input.
struct AdapterGroup {
  std::vector<at::Tensor> a, b;
};

// pack_adapters() of each group, in one launch. The results are parts of one tensor.
std::vector<PackedAdapters> pack_adapter_groups(const std::vector<AdapterGroup>& groups, at::ScalarType type);

// to[i] += from[i] in one launch, for at most 2 kMostPacked contiguous fp32 tensors on a GPU.
void add_together(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

// The same of matrices that were packed before.
PackedAdapters packed_as(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         const at::Tensor& packed_a, const at::Tensor& packed_b);

}  // namespace trainer
