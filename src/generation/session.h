// The sequences of a model that are being continued, whatever chooses their tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/generation/generate.h"
#include "trainer/models/model.h"

namespace trainer {

// Inputs that are not begun yet, in the order in which they are to be.
struct Waiting {
  const std::vector<Tokens>& inputs;
  std::vector<size_t> order{};
  // Inputs are begun only with others that are multiplied by the same kernels (nn/few_rows_linear.h), so that
  // an answer does not depend on who its neighbours are.
  bool apart = false;
  size_t next = 0;

  bool empty() const { return next == order.size(); }
  // Takes the next inputs, at most so many.
  std::vector<size_t> take(int64_t room);
};

class Session {
 public:
  Session(const Model& model, const GenerationConfig& config, at::Device device);

  // Adds rows for inputs behind the others. Returns the fp32 logits of the token after each. Undefined: their
  // sequences begin with a token that is still to be passed to next().
  at::Tensor add(const std::vector<Tokens>& inputs);
  // Takes the last token of each row.
  at::Tensor next(const std::vector<int64_t>& tokens);
  // Continues with these rows.
  void select(const std::vector<int64_t>& rows) { generation_->select(rows); }

  // The tokens that the sequence of an input begins with: itself, or an encoder-decoder's start token.
  Tokens beginning(const Tokens& input) const { return start_ ? Tokens{*start_} : input; }

 private:
  const Model& model_;
  const GenerationConfig& config_;
  at::Device device_;
  std::optional<int32_t> start_;
  std::unique_ptr<Generation> generation_;
};

}  // namespace trainer
