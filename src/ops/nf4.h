// NF4, the 4-bit type of QLoRA (Dettmers et al. 2023), as bitsandbytes keeps it: row-major, in blocks of 64
// values with one scale. A value is its block's scale times one of 16 numbers.
//
// Codes and scales have the bits of bitsandbytes 0.50 on the CPU. There a block of zeros gets the code of 0
// (on CUDA: of -1 with the scale 0, which also means 0), a shorter last block is divided by its scale instead
// of multiplied by the inverse, and double quantisation looks up x in steps of 2 / 65535 (on CUDA: the
// nearest code).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/bitsandbytes.h"

namespace trainer {

// A tensor in NF4. Of the two values in a byte, the even one is in the high half. With double quantisation
// the scale of block b is dynamic_map(true)[scales[b]] * nested_scales[b / 256] + offset, else scales[b].
struct Nf4Tensor {
  std::vector<int64_t> shape;  // of the values
  at::Tensor codes;            // uint8 [ceil(values / 2)]
  at::Tensor scales;           // [blocks]: uint8 with double quantisation, else fp32
  at::Tensor nested_scales;    // fp32 [ceil(blocks / 256)]; undefined without double quantisation
  float offset = 0.0f;         // the mean of the scales

  int64_t numel() const { return c10::multiply_integers(shape); }
  bool double_quantised() const { return nested_scales.defined(); }
};

// Returns the tensors for values of this shape, without contents; for plans.
Nf4Tensor empty_nf4(const std::vector<int64_t>& shape, bool double_quant, at::Device device);

// Quantises on the CPU, piece by piece.
class Nf4Quantiser {
 public:
  // `name` is the tensor's, for errors.
  Nf4Quantiser(std::string name, std::vector<int64_t> shape);
  // Takes the next values, in any floating type, on the CPU. Each piece but the last has a multiple of 64.
  // Throws FormatError if one is infinite or NaN.
  void add(const at::Tensor& values);
  // Returns the result when all values were added.
  Nf4Tensor finish(bool double_quant);

 private:
  std::string name_;
  Nf4Tensor out_;
  int64_t filled_ = 0;  // values
};

Nf4Tensor quantise_nf4(const std::string& name, const at::Tensor& values, bool double_quant);

// Returns the scales of all blocks, fp32 [blocks], on the CPU.
at::Tensor scales_of(const Nf4Tensor& tensor);

// Returns the values first, first + 1, ... of a tensor on the CPU, [count] in `type`: fp32, bf16 or fp16.
// Each is the product in fp32, rounded once.
at::Tensor dequantise_nf4(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type);

// The same for a tensor on any device, with the same bits.
at::Tensor dequantise(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type);

}  // namespace trainer
