// A decoder's config.json and tensor names in the words of GGUF.
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
  // Readers of `llama` rotate neighbours where Hugging Face rotates halves: rows of q and k are stored in
  // that order.
  bool interleaved;
  int64_t sliding_window = 0;  // of every layer; 0: none
  // llama3's rotary embedding: what each frequency is divided by, for the tensor rope_freqs.weight; else
  // empty.
  std::vector<float> rope_factors{};

  // The name of a tensor of the model. Throws FormatError for one that GGUF has no name for.
  std::string name_of(const std::string& tensor) const;
  // Whether its rows are reordered within each head.
  bool is_reordered(const std::string& tensor) const;
};

// Of a config.json as read_model_config() gives it. Throws FormatError that names what GGUF cannot say, or
// its readers do not do.
GgufLayout gguf_layout(const nlohmann::json& config);

}  // namespace trainer
