// The tensors of an adapter's file in a model.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"

namespace trainer {

// The parameters that belong to the adapter's file, by their names there. PEFT wraps a module that has an
// adapter, and calls what was there before "base_layer".
std::map<std::string, Parameter*> adapter_parameters(Model& model);

// An fp32 copy of `value` that is trained.
void train(Parameter& parameter, const at::Tensor& value, at::Device device);

bool has_tied_head(const Model& model);

// What the file asks of the model before adapters are put on it: as many rows in the embedding, and a head of
// its own where the adapter treats a tied head and its embedding as two.
void fit_vocabulary(Model& model, const AdapterConfig& config, const SafetensorsFile& file);

// Fills in all that is trained, and an embedding or a head that is stored though it is not trained (PEFT does
// that where the vocabulary was resized). All that does not fit is one FormatError.
void load_adapter_values(Model& model, const SafetensorsFile& file, const std::filesystem::path& directory,
                         at::Device device);

}  // namespace trainer
