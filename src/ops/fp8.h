// FP8: the type e4m3 (torch.float8_e4m3fn), which has a sign, 4 bits of exponent, 3 of fraction, no infinity,
// and 448 as its largest value. A block of a weight's values has one fp32 scale; a value is its code's times
// the scale.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

inline constexpr float kLargestFp8 = 448.0f;

// The rows and columns of a block; 0: all of them. This one is a scale a row, as quantising makes them.
using Fp8Block = std::array<int64_t, 2>;
inline constexpr Fp8Block kFp8Row{1, 0};

// A matrix in FP8.
struct Fp8Tensor {
  std::vector<int64_t> shape;  // [rows, columns]
  Fp8Block block;              // blocks at the right and lower edges may be smaller
  at::Tensor codes;            // uint8 [rows * columns]: the bytes of e4m3
  at::Tensor scales;           // fp32 [blocks], row by row

  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return shape[1]; }
  int64_t block_rows() const { return block[0] == 0 ? rows() : block[0]; }
  int64_t block_columns() const { return block[1] == 0 ? columns() : block[1]; }
  std::vector<at::Tensor> tensors() const { return {codes, scales}; }
};

// Returns the number of blocks below each other, and beside each other.
std::array<int64_t, 2> fp8_blocks(const std::vector<int64_t>& shape, const Fp8Block& block);

// Returns the tensors for values of this shape, without contents; for plans.
Fp8Tensor empty_fp8(const std::vector<int64_t>& shape, const Fp8Block& block, at::Device device);

// Quantises on the CPU, piece by piece, with a scale a row: its largest magnitude / 448 (1e-12 / 448 for a
// row that has none as large as 1e-12). A code is value / scale in fp32, rounded to the nearest, ties to
// even.
class Fp8Quantiser {
 public:
  // `name` is the tensor's, for errors.
  Fp8Quantiser(std::string name, const std::vector<int64_t>& shape);
  // Takes the next values, in any floating type, on the CPU; as many as there are. Throws FormatError if one
  // is infinite or NaN.
  void add(const at::Tensor& values);
  // Returns the result when all values were added.
  Fp8Tensor finish();

 private:
  void add_rows(const float* values, int64_t rows);

  std::string name_;
  Fp8Tensor out_;
  int64_t filled_ = 0;        // rows
  std::vector<float> begun_;  // values of a row that is not there as a whole
};

Fp8Tensor quantise_fp8(const std::string& name, const at::Tensor& values);

// Returns the rows first, first + 1, ...: [count, columns] in `type`: fp32, bf16 or fp16. A value is the
// product in fp32, rounded once; the same bits on any device.
at::Tensor widen_fp8(const Fp8Tensor& tensor, int64_t first, int64_t count, at::ScalarType type);
decltype(widen_fp8) widen_fp8_cpu;

// A factor of a product in FP8: a value is its code's times the scale of its row.
struct Fp8Rows {
  at::Tensor codes;   // uint8 [rows, columns]: the bytes of e4m3
  at::Tensor scales;  // fp32 [rows]
  std::vector<at::Tensor> tensors() const { return {codes, scales}; }
};

// Quantises x [rows, columns], fp32 or bf16, whose rows may be apart, as Fp8Quantiser does a weight: the
// scale is the row's largest magnitude / 448 (1e-35 / 448 at least: gradients are small), and a code is value
// / scale, rounded to the nearest, ties to even. `by`, fp32 [columns]: each column is multiplied by its
// number before; may be undefined. NaN stays NaN, at least where it is.
Fp8Rows fp8_rows(const at::Tensor& x, const at::Tensor& by = {});

// Returns the codes of matrices, uint8 [any rows * columns] each, below each other and transposed: uint8
// [columns, all rows]. Rows and columns are multiples of 4.
at::Tensor transposed_codes(at::TensorList codes, int64_t columns);

}  // namespace trainer
