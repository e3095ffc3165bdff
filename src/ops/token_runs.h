// Samples among the rows of a batch.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace trainer {

// A sample's tokens among the rows [batch * seq] of a batch. What lies in no run is padding.
struct TokenRun {
  int64_t first, tokens;
};
using TokenRuns = std::vector<TokenRun>;

// The runs as plain numbers, which autograd keeps for backward, and back.
inline std::vector<int64_t> numbers_of(const TokenRuns& runs) {
  std::vector<int64_t> out;
  for (const TokenRun& run : runs) out.insert(out.end(), {run.first, run.tokens});
  return out;
}
inline TokenRuns runs_from(at::IntArrayRef numbers) {
  TokenRuns runs;
  for (size_t i = 0; i < numbers.size(); i += 2) runs.push_back({numbers[i], numbers[i + 1]});
  return runs;
}

// Returns a tensor [rows, columns] without values, but for zeros in padding.
inline at::Tensor zeros_in_padding(int64_t rows, int64_t columns, const at::TensorOptions& options,
                                   const TokenRuns& runs) {
  const at::Tensor out = at::empty({rows, columns}, options);
  int64_t next = 0;
  for (const TokenRun& run : runs) {
    if (run.first > next) out.narrow(0, next, run.first - next).zero_();
    next = run.first + run.tokens;
  }
  if (rows > next) out.narrow(0, next, rows - next).zero_();
  return out;
}
inline at::Tensor zeros_in_padding(const at::Tensor& like, const TokenRuns& runs) {
  return zeros_in_padding(like.size(0), like.size(1), like.options(), runs);
}

}  // namespace trainer
