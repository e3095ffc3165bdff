// The form of a decoder's configuration, names and values in GGUF files.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/formats/gguf.h"

namespace trainer {

// Translates a decoder's config.json and tensor names to those of GGUF.
// https://github.com/ggml-org/llama.cpp (gguf-py/gguf/constants.py, src/models/)

struct GgufLayout {
  std::string architecture;  // llama, qwen2, qwen3, granite, phi3
  GgufMetadata metadata;     // the keys of the architecture
  int64_t head_dim;
  // Readers of `llama` rotate neighbouring elements, Hugging Face rotates halves: rows of q and k are stored
  // in the order that these readers expect.
  bool interleaved;
  int64_t sliding_window = 0;  // every layer's, if it is shorter than the model's context; 0: none
  // Divisors of each frequency of the rotary embedding, by the names of the tensors that hold them: of type
  // llama3 rope_freqs.weight, of type longrope rope_factors_short.weight and rope_factors_long.weight
  // (readers choose by the length of their context).
  std::map<std::string, std::vector<float>> rope_factors{};

  // The GGUF name of a tensor of the model. Throws FormatError if GGUF has no name for it.
  std::string name_of(const std::string& tensor) const;
  // Returns whether the tensor's rows are reordered within each head.
  bool is_reordered(const std::string& tensor) const;
};

// Whether models of this model_type can be written as GGUF.
bool has_gguf(const std::string& model_type);

// `config`: what read_model_config() returns. Throws FormatError that names what GGUF cannot express or its
// readers do not support.
GgufLayout gguf_layout(const nlohmann::json& config);

// Values of tensors as GGUF files hold them.

inline constexpr uint32_t kGgufQuantizationVersion = 2;  // version of ggml's block types

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

// Returns whether `values`, read from a file, are `expected` rounded to the type; in Q8_0 within half a step
// of their block.
bool agree_in_gguf(const at::Tensor& values, const at::Tensor& expected, GgufType type);

}  // namespace trainer
