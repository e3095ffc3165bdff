// The plan of a merge: which tensor is written under which name.
#pragma once

#include <cstring>
#include <map>
#include <string>

#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"
#include "trainer/formats/safetensors.h"

#include "adapters/merged_tensor.h"

namespace trainer {

inline constexpr const char* kHead = "lm_head.weight";  // the output head in weight files

// Returns whether a head is a copy of the embedding.
inline bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.nbytes) == 0;
}

struct MergePlan {
  std::map<std::string, MergedTensor> tensors;
  int64_t merged = 0, replaced = 0;
  bool untied = false;
};

// Copies all tensors of the base unchanged. Files of a T5 may hold the embedding several times; it is written
// once. `embedding`: its name in the model.
MergePlan plan_copy(const ModelWeights& base, const std::string& embedding);

// The tensors of the base with those of the adapter added. `embedding` names the tensor that the head is tied
// to, if the head is not stored, or if it is stored as a copy and `tie_word_embeddings` is true. Throws
// FormatError that names all tensors that do not fit.
MergePlan plan_merge(const ModelWeights& base, const AdapterConfig& config, const SafetensorsFile& adapter,
                     const std::string& embedding, bool tie_word_embeddings,
                     const std::filesystem::path& directory);

}  // namespace trainer
