// Writes what the library computes for models; tests/parity/models compares it with Transformers.
//
//   dump_model [--packed] CASE...
//
// --packed: samples share a row.
// CASE/model is a model directory, CASE/batch.json {"input_ids", "labels", "prompts", "max_new_tokens"}.
// Writes CASE/ours.safetensors: logits that predict each supervised label, loss, grad.NAME; and
// CASE/ours.json: {"generated"}, or {"error"} if the model is refused.
#include <fstream>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/generation/generate.h"
#include "trainer/models/load_model.h"

#include "models/tensor_views.h"

namespace {

using namespace trainer;
using nlohmann::json;
namespace fs = std::filesystem;
using Ids = std::vector<std::vector<int32_t>>;

void dump(const fs::path& folder, bool packed, json& result) {
  std::ifstream in(folder / "batch.json");
  const json samples = json::parse(in);
  const auto model = load_model(folder / "model", {at::kCPU, at::kFloat, /*train_all=*/true});
  const Ids inputs = samples["input_ids"].get<Ids>(), labels = samples["labels"].get<Ids>();
  EffectiveBatch batch;
  std::vector<int64_t> slots;
  for (size_t i = 0; i < inputs.size(); i++) {
    slots.push_back(static_cast<int64_t>(i));
    batch.samples.push_back({inputs[i], labels[i]});
    batch.supervised_tokens += supervised_tokens(batch.samples.back(), model->encoder_decoder());
  }
  CollateOptions options = model->collate_options();
  options.packing = packed;
  const MicroBatch micro_batch = collate(batch, slots, options, at::kCPU);
  ForwardContext context;
  context.anchor = at::zeros({1}).set_requires_grad(true);
  std::map<std::string, at::Tensor> tensors;
  {
    at::NoGradGuard no_grad;
    tensors["logits"] = model->head().logits(model->supervised_states(micro_batch, context));
  }
  const at::Tensor loss = model->loss(micro_batch, context).loss;
  const double n = static_cast<double>(batch.supervised_tokens);
  loss.backward(at::full({}, 1.0 / n));
  tensors["loss"] = loss.detach() / n;
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!parameter.trained()) return;
    const at::Tensor& gradient = parameter.value.tensor().grad();
    tensors["grad." + name] = gradient.defined() ? gradient : at::zeros_like(parameter.value.tensor());
  });
  std::map<std::string, TensorView> views;
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.to(at::kFloat).contiguous();
    views[name] = view_of(tensor);
  }
  write_safetensors(folder / "ours.safetensors", views);
  GenerationConfig config = read_generation_config(folder / "model", model->vocab_size());
  config.max_new_tokens = samples["max_new_tokens"];
  config.packing = packed;
  for (const auto& answers : generate(*model, samples["prompts"].get<Ids>(), config, at::kCPU))
    result["generated"].push_back(answers.at(0));
}

}  // namespace

int main(int argc, char** argv) {
  const bool packed = argc > 1 && std::string(argv[1]) == "--packed";
  for (int i = packed ? 2 : 1; i < argc; i++) {
    const fs::path folder = argv[i];
    json result;
    try {
      dump(folder, packed, result);
    } catch (const std::exception& error) {
      result["error"] = error.what();
    }
    std::ofstream(folder / "ours.json") << result.dump() << "\n";
  }
}
