#include "ops/packed_adapters.h"

#include <ATen/ATen.h>

#include "ops/kernels.h"

namespace trainer {
namespace {

// As packed_adapters.cu has it.
struct AdapterTable {
  const float *a[kMostPacked], *b[kMostPacked];
  int first_rank[kMostPacked + 1], first_output[kMostPacked + 1];
  int count, inputs;
};

at::Tensor part(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& first, size_t i) {
  return x.narrow(dim, first[i], first[i + 1] - first[i]);
}

}  // namespace

at::Tensor PackedAdapters::ranks_of(const at::Tensor& x, size_t i) const { return part(x, 1, first_rank, i); }
at::Tensor PackedAdapters::outputs_of(const at::Tensor& y, size_t i) const {
  return part(y, 1, first_output, i);
}
at::Tensor PackedAdapters::a_of(size_t i) const { return part(a, 0, first_rank, i); }
at::Tensor PackedAdapters::b_of(size_t i) const {
  return part(part(b, 0, first_output, i), 1, first_rank, i);
}

bool packs_adapters(at::Device device, at::ScalarType type) {
  return has_kernels(device) && (type == at::kFloat || type == at::kBFloat16);
}

PackedAdapters packed_as(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         const at::Tensor& packed_a, const at::Tensor& packed_b) {
  PackedAdapters packed{packed_a, packed_b, {0}, {0}};
  for (size_t i = 0; i < a.size(); i++) {
    packed.first_rank.push_back(packed.ranks() + a[i].size(0));
    packed.first_output.push_back(packed.outputs() + b[i].size(0));
  }
  return packed;
}

PackedAdapters pack_adapters(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                             at::ScalarType type) {
  TORCH_CHECK(!a.empty() && a.size() == b.size() && a.size() <= kMostPacked, "pack_adapters: ", a.size(),
              " and ", b.size(), " matrices");
  PackedAdapters packed = packed_as(a, b, {}, {});
  AdapterTable table{};
  table.count = static_cast<int>(a.size());
  table.inputs = static_cast<int>(a[0].size(1));
  for (size_t i = 0; i < a.size(); i++) {
    TORCH_CHECK(a[i].size(1) == table.inputs && b[i].size(1) == a[i].size(0) && a[i].is_contiguous() &&
                    b[i].is_contiguous(),
                "pack_adapters: matrices of other shapes");
    table.a[i] = static_cast<const float*>(elements(a[i], a[0], at::kFloat));
    table.b[i] = static_cast<const float*>(elements(b[i], a[0], at::kFloat));
    table.first_rank[i + 1] = static_cast<int>(packed.first_rank[i + 1]);
    table.first_output[i + 1] = static_cast<int>(packed.first_output[i + 1]);
  }
  packed.a = at::empty({packed.ranks(), table.inputs}, a[0].options().dtype(type).requires_grad(false));
  packed.b = at::empty({packed.outputs(), packed.ranks()}, packed.a.options());
  kernels_for(packed.a, "packed_adapters", /*width=*/0)
      .start("pack_adapters", grid_of(packed.a.numel() + packed.b.numel()), table,
             packed.a.mutable_data_ptr(), packed.b.mutable_data_ptr());
  return packed;
}

}  // namespace trainer
