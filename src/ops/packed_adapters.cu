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
