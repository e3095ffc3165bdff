#include "ops/packed_adapters.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "data/upload.h"
#include "device/observed.h"
#include "ops/kernels.h"
#include "ops/plain_view.h"

namespace trainer {
namespace {

// As packed_adapters.cu has it.
struct AdapterTable {
  const float *a[kMostPacked], *b[kMostPacked];
  int first_rank[kMostPacked + 1], first_output[kMostPacked + 1];
  int count, inputs;
};

at::Tensor part(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& first, size_t i) {
  const int64_t count = first[i + 1] - first[i];
  return dim == 0 ? plain_rows(x, first[i], count) : plain_columns(x, first[i], count);
}

struct AdapterMatrix {
  const float* from;
  void* to;
  int rows, cols, first, past;
};

struct TensorPairs {
  float* to[2 * kMostPacked];
  const float* from[2 * kMostPacked];
  int64_t first[2 * kMostPacked + 1];
  int count, width;
};

// Of one group, whose packed matrices have their places.
void add_matrices(const AdapterGroup& group, const PackedAdapters& packed, std::vector<AdapterMatrix>& all) {
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  const int inputs = number(group.a[0].size(1)), ranks = number(packed.ranks());
  for (size_t i = 0; i < group.a.size(); i++) {
    const at::Tensor &a = group.a[i], &b = group.b[i];
    TORCH_CHECK(a.size(1) == inputs && b.size(1) == a.size(0) && a.is_contiguous() && b.is_contiguous(),
                "pack_adapter_groups: matrices of other shapes");
    all.push_back({static_cast<const float*>(elements(a, group.a[0], at::kFloat)),
                   packed.a_of(i).mutable_data_ptr(), number(a.size(0)), inputs, 0, inputs});
    all.push_back({static_cast<const float*>(elements(b, group.a[0], at::kFloat)),
                   part(packed.b, 0, packed.first_output, i).mutable_data_ptr(), number(b.size(0)), ranks,
                   number(packed.first_rank[i]), number(packed.first_rank[i + 1])});
  }
}

std::vector<at::Tensor> all_of(std::vector<at::Tensor> some, const std::vector<at::Tensor>& more,
                               const std::vector<at::Tensor>& others) {
  some.insert(some.end(), more.begin(), more.end());
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

at::Tensor on_device(const std::vector<AdapterMatrix>& matrices, at::Device device) {
  const auto bytes = static_cast<int64_t>(matrices.size() * sizeof(AdapterMatrix));
  const at::Tensor here = empty_for_upload({bytes}, at::kByte, device);
  std::memcpy(here.mutable_data_ptr(), matrices.data(), static_cast<size_t>(bytes));
  at::Tensor there = at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  return there.copy_(here, /*non_blocking=*/true);
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
  observed(
      "trainer::pack_adapters",
      [&] {
        return all_of(a, b, {packed.a, packed.b});
      },
      [&] {
        kernels_for(packed.a, "packed_adapters", /*width=*/0)
            .start("pack_adapters", grid_of(packed.a.numel() + packed.b.numel()), table,
                   packed.a.mutable_data_ptr(), packed.b.mutable_data_ptr());
      });
  return packed;
}

std::vector<PackedAdapters> pack_adapter_groups(const std::vector<AdapterGroup>& groups,
                                                at::ScalarType type) {
  constexpr int64_t kAligned = 64;  // elements
  std::vector<PackedAdapters> all;
  int64_t size = 0;
  const auto take = [&](int64_t elements) {
    return std::exchange(size, size + (elements + kAligned - 1) / kAligned * kAligned);
  };
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const AdapterGroup& group : groups) {
    const PackedAdapters& packed = all.emplace_back(packed_as(group.a, group.b, {}, {}));
    const int64_t a = take(packed.ranks() * group.a[0].size(1));
    places.emplace_back(a, take(packed.outputs() * packed.ranks()));
  }
  if (groups.empty()) return all;
  const at::Tensor& like = groups[0].a[0];
  const at::Tensor memory = at::empty({size}, like.options().dtype(type).requires_grad(false));
  std::vector<AdapterMatrix> matrices;
  int64_t largest = 0;
  for (size_t i = 0; i < groups.size(); i++) {
    PackedAdapters& packed = all[i];
    const auto matrix = [&](int64_t first, int64_t rows, int64_t columns) {
      largest = std::max(largest, rows * columns);
      return plain_view(memory, {rows, columns}, {columns, 1}, first);
    };
    packed.a = matrix(places[i].first, packed.ranks(), groups[i].a[0].size(1));
    packed.b = matrix(places[i].second, packed.outputs(), packed.ranks());
    add_matrices(groups[i], packed, matrices);
  }
  constexpr int64_t kMostRows = 65535, kMostBlocks = 64, kOfBlock = 1024;  // kOfBlock: elements
  const at::Tensor table = on_device(matrices, like.device());
  const auto tensors = [&] {
    std::vector<at::Tensor> some{memory};
    for (const AdapterGroup& group : groups) some = all_of(std::move(some), group.a, group.b);
    return some;
  };
  observed("trainer::pack_adapter_groups", tensors, [&] {
    for (int64_t first = 0; first < std::ssize(matrices); first += kMostRows) {
      const KernelGrid grid{std::clamp<int64_t>(largest / kOfBlock, 1, kMostBlocks),
                            std::min(kMostRows, std::ssize(matrices) - first), 256};
      kernels_for(memory, "packed_adapters", /*width=*/0)
          .start(
              "pack_all_adapters", grid,
              element_at(table.const_data_ptr(), table, first * static_cast<int64_t>(sizeof(AdapterMatrix))));
    }
  });
  return all;
}

void add_together(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  TORCH_CHECK(to.size() == from.size() && to.size() <= 2 * kMostPacked, "add_together: ", to.size(), " and ",
              from.size(), " tensors");
  if (to.empty()) return;
  int64_t width = 4;
  for (size_t i = 0; i < to.size(); i++) {
    TORCH_CHECK(to[i].sizes() == from[i].sizes() && to[i].is_contiguous() && from[i].is_contiguous(),
                "add_together: tensors of other shapes");
    width = std::min(width, width_for(to[i].numel(), {to[i], from[i]}));
  }
  TensorPairs pairs{};
  pairs.count = static_cast<int>(to.size());
  pairs.width = static_cast<int>(width);
  for (size_t i = 0; i < to.size(); i++) {
    pairs.to[i] = static_cast<float*>(to[i].mutable_data_ptr());
    pairs.from[i] = static_cast<const float*>(elements(from[i], to[0], at::kFloat));
    pairs.first[i + 1] = pairs.first[i] + to[i].numel() / width;
  }
  observed(
      "trainer::add_together", [&] { return all_of(to, to, from); },
      [&] {
        kernels_for(to[0], "packed_adapters", /*width=*/0)
            .start("add_tensors", grid_of(pairs.first[to.size()]), pairs);
      });
}

}  // namespace trainer
