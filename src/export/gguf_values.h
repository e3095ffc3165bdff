// Values of tensors as GGUF files hold them.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/formats/gguf.h"

namespace trainer {

inline constexpr uint32_t kGgufQuantizationVersion = 2;  // of ggml's block types

// general.file_type: the numbers of llama.cpp's llama_ftype.
uint32_t gguf_file_type(GgufType type);

// The type in which a tensor of this shape is written: vectors in fp32, and matrices whose rows are no blocks
// of Q8_0 in fp16 instead.
GgufType gguf_type_for(const std::vector<int64_t>& shape, GgufType wanted);

// Interleaves the two halves of each head of `rows` [heads * head_dim, columns]: one row of the first, one of
// the second, and so on.
at::Tensor interleaved(const at::Tensor& rows, int64_t head_dim);

// Writes fp32 `values` [rows, columns] in `type`. Throws FormatError that names the tensor if a value is NaN,
// infinite or beyond the type's range.
void write_gguf_values(const at::Tensor& values, GgufType type, const std::string& name, std::ostream& out);

// Returns rows of a tensor of a file, fp32 [rows, columns]. The file's pages are given back.
at::Tensor read_gguf_values(const GgufTensor& tensor, int64_t first, int64_t rows);

// Whether `values`, read from a file, are `expected` rounded to the type; in Q8_0 within half a step of their
// block.
bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type);

}  // namespace trainer
