// Keys and values of one attention of one layer while sequences are generated.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Where the sequences of a batch end, each after its own number of tokens.
class CachePositions {
 public:
  explicit CachePositions(const at::Tensor& lengths);  // int64 [batch]

  void advance();  // each is one token longer
  void select(const std::vector<int64_t>& rows);

  const at::Tensor& lengths() const { return lengths_; }  // int64 [batch], on the device
  int64_t longest() const { return longest_; }
  bool equal() const { return equal_; }  // all are `longest`
  const std::vector<int64_t>& lengths_on_host() const { return host_; }
  // Additive mask [batch, 1, 1, longest + 1] for one more token of each row, which sees itself and what is
  // before it; with a window so many positions in all. Undefined where every row sees everything.
  at::Tensor mask(at::ScalarType type, std::optional<int64_t> window = std::nullopt) const;

 private:
  void update();
  at::Tensor lengths_;
  std::vector<int64_t> host_;
  int64_t longest_ = 0;
  bool equal_ = true;
};

// Has room for more than there is and grows in steps, so that a token is appended without copying what is
// there.
class KvCache {
 public:
  // The first n positions of each row, whatever is padding among them: k, v [batch, heads, n, head_dim].
  void fill(const at::Tensor& k, const at::Tensor& v);
  // One position more for each row, at its end: k, v [batch, heads, 1, head_dim]. Returns keys and values
  // [batch, heads, longest + 1, head_dim]; beyond a row's end they are not to be looked at.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v,
                                           const CachePositions& positions);
  // Goes on with these rows, int64 on the device.
  void select(const at::Tensor& rows);

 private:
  static void write(at::Tensor& cache, const at::Tensor& x, const CachePositions& positions);
  at::Tensor k_, v_;  // [batch, heads, capacity, head_dim]
};

}  // namespace trainer
