// The LoRA matrices of layers with the same input, next to each other (src/ops/packed_adapters.h). Open:
// Element.
#include "device/prelude.cuh"

// Layer i has a[i] [ranks, inputs], b[i] [outputs, ranks]. Its rows of a_all and columns of b_all are
// first_rank[i] to first_rank[i + 1], its rows of b_all first_output[i] to first_output[i + 1].
struct AdapterTable {
  const float *a[8], *b[8];
  int first_rank[9], first_output[9];
  int count, inputs;
};

// a_all [all ranks, inputs]: one below the other. b_all [all outputs, all ranks]: along the diagonal, zero
// elsewhere.
KERNEL pack_adapters(AdapterTable table, Element* a_all, Element* b_all) {
  const long long ranks = table.first_rank[table.count], outputs = table.first_output[table.count];
  const long long of_a = ranks * table.inputs, index = thread_index();
  if (index >= of_a + outputs * ranks) return;
  int layer = 0;
  if (index < of_a) {
    const int rank = static_cast<int>(index / table.inputs), column = static_cast<int>(index % table.inputs);
    while (rank >= table.first_rank[layer + 1]) layer++;
    const long long row = rank - table.first_rank[layer];
    a_all[index] = narrow<Element>(table.a[layer][row * table.inputs + column]);
    return;
  }
  const long long of_b = index - of_a;
  const int output = static_cast<int>(of_b / ranks), rank = static_cast<int>(of_b % ranks);
  while (output >= table.first_output[layer + 1]) layer++;
  const int first = table.first_rank[layer], past = table.first_rank[layer + 1];
  const long long row = output - table.first_output[layer];
  const bool inside = rank >= first && rank < past;
  b_all[of_b] = narrow<Element>(inside ? table.b[layer][row * (past - first) + rank - first] : 0.0f);
}

// A matrix of one layer for pack_all_adapters, and the rows of its packed matrix that it fills: `from`
// [rows, past - first] goes to columns first to past of `to` [rows, cols], zeros to the others.
struct AdapterMatrix {
  const float* from;
  Element* to;
  int rows, cols, first, past;
};

// The matrices of many groups: row y of the grid works on matrices[y].
KERNEL pack_all_adapters(const AdapterMatrix* matrices) {
  const AdapterMatrix m = matrices[blockIdx.y];
  const int width = (m.cols | m.first | m.past) % 4 == 0 ? 4 : 1, packs = m.cols / width;
  const long long all = static_cast<long long>(m.rows) * packs;
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = thread_index(); i < all; i += step) {
    const long long row = i / packs;
    const int column = static_cast<int>(i % packs) * width;
    const bool inside = column >= m.first && column < m.past;
    const float* from = m.from + row * (m.past - m.first) + column - m.first;
    Element* to = m.to + row * m.cols + column;
    if (width == 1) {
      *to = narrow<Element>(inside ? *from : 0.0f);
      continue;
    }
    Pack<float, 4> four = {};
    if (inside) four = load<4>(from);
    Pack<Element, 4> narrowed;
    UNROLL for (int k = 0; k < 4; k++) narrowed.at[k] = narrow<Element>(four.at[k]);
    store<4>(to, narrowed);
  }
}

// Pairs of fp32 tensors for add_tensors: tensor i has elements first[i] to first[i + 1], counted over all of
// them in packs of `width`, 1 or 4.
struct TensorPairs {
  float* to[16];
  const float* from[16];
  long long first[17];
  int count, width;
};

// to += from, for each of them.
KERNEL add_tensors(TensorPairs pairs) {
  const long long index = thread_index();
  if (index >= pairs.first[pairs.count]) return;
  int tensor = 0;
  while (index >= pairs.first[tensor + 1]) tensor++;
  const long long at = (index - pairs.first[tensor]) * pairs.width;
  float* to = pairs.to[tensor] + at;
  const float* from = pairs.from[tensor] + at;
  if (pairs.width == 1) {
    *to += *from;
    return;
  }
  Pack<float, 4> sum = load<4>(static_cast<const float*>(to));
  const Pack<float, 4> more = load<4>(from);
  UNROLL for (int k = 0; k < 4; k++) sum.at[k] += more.at[k];
  store<4>(to, sum);
}
