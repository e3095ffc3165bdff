// The cache of generation: keys and values of the attention in one layer, or a recurrent layer's state.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/cache_rows.h"

namespace trainer {

// The length of each sequence in the batch.
class CachePositions {
 public:
  // int64 [batch] on the device, and the same numbers on the host.
  CachePositions(const at::Tensor& lengths, const std::vector<int64_t>& on_host);

  void advance();  // each sequence becomes one token longer
  void select(const std::vector<int64_t>& rows);

  const at::Tensor& lengths() const { return lengths_; }  // int64 [batch], on the device
  int64_t longest() const { return longest_; }
  bool equal() const { return equal_; }  // all lengths are `longest`
  const std::vector<int64_t>& lengths_on_host() const { return host_; }
  // Returns the additive mask [batch, 1, 1, longest + 1] for one more token of each row. The token sees
  // itself and all positions before it, or the last `window` positions and the first `always` of each row
  // (int64 [batch]; undefined: none). Undefined if every row sees everything.
  at::Tensor mask(at::ScalarType type, std::optional<int64_t> window = std::nullopt,
                  const at::Tensor& always = {}) const;

 private:
  void update();
  at::Tensor lengths_;
  std::vector<int64_t> host_;
  int64_t longest_ = 0;
  bool equal_ = true;
};

// Takes keys or values of sequences that lie one after another, [1, heads, tokens, head_dim]. Returns
// [sequences, heads, room, head_dim], with 0 after the end of each sequence.
at::Tensor by_sequence(const at::Tensor& packed, const std::vector<int64_t>& lengths, int64_t room);

// Returns whether caches on this device have slots (models/cache_rows.h): on the CPU. Others have a row for
// each sequence, with masks. keep_rows_on_cpu(): the CPU, too, so that tests of a machine without a GPU see
// these.
bool caches_have_slots(at::Device device);
void keep_rows_on_cpu(bool rows);

// Allocates room for more than it holds and grows in steps, so that appending a token does not copy the rest.
class KvCache {
 public:
  // Stores the first n positions of each row, padding included: k, v [batch, heads, n, head_dim].
  void fill(const at::Tensor& k, const at::Tensor& v);
  // Stores sequences that lie one after another: k, v [1, heads, tokens, head_dim].
  void fill_packed(const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& lengths);
  // Appends one position to the end of each row: k, v [batch, heads, 1, head_dim]. Returns keys and values
  // [batch, heads, longest + 1, head_dim]; positions beyond a row's end must be masked.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v,
                                           const CachePositions& positions);
  // Continues with these rows, int64 on the device.
  void select(const at::Tensor& rows);

  // On the CPU, for rows that say where everything lies. put() stores the keys and values of the rows from
  // `first` on, whose lengths are theirs: [rows, heads, n, head_dim] with padding, or packed, [1, heads,
  // tokens, head_dim]. keys() makes room for all positions of the rows; those that are not written yet hold
  // nothing.
  enum class Grows { yes, no };
  void put(const CacheRows& rows, int64_t first, const at::Tensor& k, const at::Tensor& v, bool packed,
           Grows grows = Grows::yes);
  CachedKeys keys(const CacheRows& rows, const at::Tensor& like);

  // A recurrent layer's (GatedDeltaNet) instead: the inputs of its convolution before the next token, [batch,
  // positions, columns], and its states, fp32 [batch, heads, key_dim, value_dim].
  at::Tensor tail, states;

 private:
  void make_room(const CacheRows& rows, const at::Tensor& like, Grows grows);
  static void write(at::Tensor& cache, const at::Tensor& x, const CachePositions& positions);
  at::Tensor k_, v_;  // [batch or slots, heads, capacity, head_dim]
};

}  // namespace trainer
