// What a merge writes under which name.
#pragma once

#include <map>
#include <string>

#include "trainer/adapters/merged_tensor.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

namespace trainer {

struct MergePlan {
  std::map<std::string, MergedTensor> tensors;
  int64_t merged = 0, replaced = 0;
  bool untied = false;
};

// All tensors of the base as they are; of a T5's embedding, which files may hold several times, one.
// `embedding`: its name in the model.
MergePlan plan_copy(const ModelWeights& base, const std::string& embedding);

// With those of the adapter, by the names in its file. `embedding` is what a head is tied to that is not
// stored, or is stored as a copy of it where tie_word_embeddings says so. Throws FormatError naming all
// tensors that do not fit.
MergePlan plan_merge(const ModelWeights& base, const AdapterConfig& config, const SafetensorsFile& adapter,
                     const std::string& embedding, bool tie_word_embeddings,
                     const std::filesystem::path& directory);

}  // namespace trainer
