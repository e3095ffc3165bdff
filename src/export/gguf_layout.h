// The form of a model's configuration, names and values in GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/formats/gguf.h"

#include "export/gguf_types.h"

namespace trainer {

// Translates a model's config.json and tensor names to those of GGUF.
// https://github.com/ggml-org/llama.cpp (gguf-py/gguf/constants.py, src/models/, conversion/)

// A tensor of the file, made from one of the model's.
struct GgufPart {
  std::string name;
  int64_t first_row = 0, rows = -1;  // of the model's tensor; -1: all
  // Reordering: of each `unit` rows, which one comes at each place. Undefined: as they are.
  at::Tensor row_order;
  int64_t unit = 1;
  at::Tensor column_order;
  enum class Value { same, plus_one, minus_exp } value = Value::same;
  double times = 1.0;
  bool squeezed = false;  // [channels, 1, width] is [channels, width] in the file

  // Returns the file's rows made from whole units of the model's, fp32 [rows, columns].
  at::Tensor in_file(const at::Tensor& rows) const;
  // The same for the matrices of a LoRA adapter, a [r, in] and b [out, r].
  at::Tensor a_in_file(const at::Tensor& a) const;
  at::Tensor b_in_file(const at::Tensor& b) const;
  // Returns the shape in the file of a tensor of this shape in the model.
  std::vector<int64_t> shape_in_file(std::vector<int64_t> shape) const;
};

struct GgufLayout {
  std::string architecture;        // llama, qwen35, t5, ...
  GgufMetadata metadata;           // the keys of the architecture
  int64_t blocks = 0;              // block_count
  int64_t sliding_window = 0;      // a window that readers ignore, if it is shorter than the context; 0: none
  bool gemma4_vocabulary = false;  // readers expect the tokenizer that make_gemma4() makes
  // Divisors of each frequency of the rotary embedding, by the names of the tensors that hold them: of type
  // llama3 rope_freqs.weight, of type longrope rope_factors_short.weight and rope_factors_long.weight
  // (readers choose by the length of their context).
  std::map<std::string, std::vector<float>> rope_factors{};
  // The parts of a tensor by its name in a text model; empty: it has no name in GGUF.
  std::function<std::vector<GgufPart>(const std::string& tensor)> parts;

  // Returns the tensors of the file that are made from the model's tensor. Throws FormatError if GGUF has no
  // name for it.
  std::vector<GgufPart> parts_of(const std::string& tensor) const;
};

// Whether models of this model_type can be written as GGUF.
bool has_gguf(const std::string& model_type);

// `config`: what read_model_config() returns; `has_head`: the output head is a tensor of its own. Throws
// FormatError that names what GGUF cannot express or its readers do not support.
GgufLayout gguf_layout(const nlohmann::json& config, bool has_head);

// The layouts of the two kinds of models.
GgufLayout gguf_layout_of_t5(const nlohmann::json& config, bool has_head);
bool is_decoder_with_gguf(const std::string& model_type);
GgufLayout gguf_layout_of_decoder(const nlohmann::json& config, bool has_head);

// Metadata of an architecture.
class GgufKeys {
 public:
  explicit GgufKeys(std::string architecture) : architecture_(std::move(architecture)) {}
  void number(const char* key, int64_t value) { add(key, static_cast<uint32_t>(value)); }
  void real(const char* key, double value) { add(key, static_cast<float>(value)); }
  void add(const char* key, GgufValue value);
  void set(const char* key, GgufValue value);  // replaces one that is there
  GgufMetadata all;

 private:
  std::string architecture_;
};

// Throws the FormatError for a setting that GGUF cannot express.
[[noreturn]] void refuse_in_gguf(const std::string& what);

}  // namespace trainer
