// The logits that compare an export with its source, and the comparison.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"
#include "trainer/models/load_model.h"

namespace trainer {

// The model that gives the logits.
struct LogitsSource {
  std::filesystem::path model;
  std::filesystem::path adapter = {};                   // put on the model, unless it is empty
  std::optional<Quantisation> quantise = std::nullopt;  // the model's weights, while they are loaded
};

// Returns the logits for a fixed prompt of 16 tokens (for an encoder-decoder: a source and a target), fp32
// [positions, vocab], computed in fp32. Equal weights give the same bits, whatever type they are stored in
// and wherever they lie in memory. Memory: one block in fp32, the output projection, the adapter, and the
// codes of weights that are quantised. Throws FormatError if a directory does not load.
at::Tensor streamed_logits(const LogitsSource& source);

// The relative rounding error of a type; 0 for fp32.
double unit_of(Dtype dtype);

// The allowed difference between the weights of an export and of its source.
struct LogitsBound {
  bool exact = false;  // no value was changed
  Dtype dtype;         // the coarsest type that values were rounded to
  int64_t blocks = 0;  // the model's
};

// Returns the logits of `source`. Throws FormatError if they are not finite.
at::Tensor require_finite(at::Tensor logits, const std::filesystem::path& source);

// Returns a line about the agreement. Throws FormatError if the logits differ by more than rounding explains.
std::string check_logits(const at::Tensor& found, const at::Tensor& expected,
                         const std::filesystem::path& source, const LogitsBound& bound);

// Returns "differ from those of WHOM by at most 0.1, ..."; both fp32 [positions, vocab].
std::string difference_text(const at::Tensor& found, const at::Tensor& expected, const std::string& whom);

// Returns at how many of the positions another token has the highest logit, and which types avoid that.
std::string answers_text(const at::Tensor& found, const at::Tensor& expected);

}  // namespace trainer
