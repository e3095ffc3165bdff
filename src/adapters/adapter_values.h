// Moves the tensors of an adapter file into a model.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"

namespace trainer {

// The parameters that belong in the adapter file, by their names there. PEFT wraps a module that has an
// adapter, and calls the original module "base_layer".
std::map<std::string, Parameter*> adapter_parameters(Model& model);

// What the file holds besides if a tied head shares the adapter of its embedding: the head's own names for
// the same values, as PEFT stores them. Views of the parameters, transposed.
std::map<std::string, at::Tensor> shared_head_tensors(Model& model);

// Makes `parameter` an fp32 copy of `value` that is trained.
void train(Parameter& parameter, const at::Tensor& value, at::Device device);

bool has_tied_head(const Model& model);

// Changes the model as the file requires before adapters are added: the embedding gets as many rows as are
// stored, and a tied head gets its own weight if the adapter treats head and embedding as two tensors.
void fit_vocabulary(Model& model, const AdapterConfig& config, const SafetensorsFile& file);

// Fills in everything that is trained, and an embedding or head that is stored although it is not trained
// (PEFT does that if the vocabulary was resized). Throws one FormatError that lists all that does not fit.
void load_adapter_values(Model& model, const SafetensorsFile& file, const std::filesystem::path& directory,
                         at::Device device);

}  // namespace trainer
