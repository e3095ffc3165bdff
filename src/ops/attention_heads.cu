// Moves tensors between [batch, rows, heads, cols] and [batch * heads, rows, cols]
// (src/ops/attention_heads.h). Open: Element, kWidth.
#include "device/prelude.cuh"

// Strides in elements; the columns are together in memory.
struct HeadsMove {
  const void* from;
  void* to;
  long long from_batch, from_head, from_row, to_batch, to_head, to_row;
  long long rows;
};
struct HeadsMoves {
  HeadsMove of[4];
};

// A thread takes kWidth columns of a row of tensor blockIdx.y.
KERNEL move_heads(HeadsMoves moves, long long batch, int heads, int cols) {
  const HeadsMove& move = moves.of[blockIdx.y];
  // In 32 bits, into which the number of threads fits: dividing 64 takes longer than the copy.
  const unsigned packs = cols / kWidth, of_row = packs * heads, rows = static_cast<unsigned>(move.rows);
  const unsigned i = static_cast<unsigned>(thread_index());
  if (i >= batch * rows * of_row) return;
  const unsigned row_of_all = i / of_row, in_row = i % of_row;
  const long long head = in_row / packs, b = row_of_all / rows, row = row_of_all % rows;
  const unsigned c = in_row % packs * kWidth;
  const Element* from = static_cast<const Element*>(move.from) + b * move.from_batch + head * move.from_head +
                        row * move.from_row + c;
  Element* to =
      static_cast<Element*>(move.to) + b * move.to_batch + head * move.to_head + row * move.to_row + c;
  store<kWidth>(to, load<kWidth>(from));
}
