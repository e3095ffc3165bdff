// The types in which tensors are written to GGUF files, and their values.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/formats/gguf.h"

namespace trainer {

inline constexpr uint32_t kGgufQuantizationVersion = 2;  // version of ggml's block types

// general.file_type: the numbers of llama.cpp's llama_ftype. Q4_K stands for its mix Q4_K_M.
uint32_t gguf_file_type(GgufType type);

struct GgufShape {
  std::string name;  // in the file
  std::vector<int64_t> shape;
};

// Returns the type of each tensor of a model with `blocks` layers where matrices are wanted in `type`.
// Vectors, norms, convolutions and relative position biases are fp32. With Q8_0 and Q4_K a matrix whose rows
// are no blocks of a type gets the next one that fits, fp16 at last. With Q4_K the types are those of
// llama-quantize's Q4_K_M: Q6_K for the output, and for values and ffn_down of some layers.
std::vector<GgufType> gguf_types(const std::vector<GgufShape>& tensors, GgufType type, int64_t blocks);

// Writes fp32 `values` [rows, columns] in `type`. Throws FormatError that names the tensor if a value is NaN,
// infinite or beyond the type's range.
void write_gguf_values(const at::Tensor& values, GgufType type, const std::string& name, std::ostream& out);

// Returns rows of a tensor of a file, fp32 [rows, columns]. The file's pages are given back.
at::Tensor read_gguf_values(const GgufTensor& tensor, int64_t first, int64_t rows);

// Returns whether `values`, read from a file, are `expected` rounded to the type; in Q8_0 within half a step
// of their block, in types of fewer bits with an error that such types can have.
bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type);

}  // namespace trainer
