// Compares the logits of an export with those of its source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

// The relative rounding error of a type; 0 for fp32.
double unit_of(Dtype dtype);

// What may differ between the weights of an export and of its source.
struct LogitsBound {
  bool exact = false;  // no value was changed
  Dtype dtype;         // the coarsest type that values were rounded to
  int64_t blocks = 0;  // of the model
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
