// Translates a decoder's config.json and tensor names to those of GGUF.
// https://github.com/ggml-org/llama.cpp (gguf-py/gguf/constants.py, src/models/)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/formats/gguf.h"

namespace trainer {

struct GgufLayout {
  std::string architecture;  // llama, qwen2, qwen3
  GgufMetadata metadata;     // the keys of the architecture
  int64_t head_dim;
  // Readers of `llama` rotate neighbouring elements, Hugging Face rotates halves: rows of q and k are stored
  // in the order that these readers expect.
  bool interleaved;
  int64_t sliding_window = 0;  // of every layer; 0: none
  // For llama3's rotary embedding: the divisor of each frequency, for the tensor rope_freqs.weight. Otherwise
  // empty.
  std::vector<float> rope_factors{};

  // The GGUF name of a tensor of the model. Throws FormatError if GGUF has no name for it.
  std::string name_of(const std::string& tensor) const;
  // Whether the tensor's rows are reordered within each head.
  bool is_reordered(const std::string& tensor) const;
};

// `config`: what read_model_config() returns. Throws FormatError that names what GGUF cannot express or its
// readers do not support.
GgufLayout gguf_layout(const nlohmann::json& config);

}  // namespace trainer
