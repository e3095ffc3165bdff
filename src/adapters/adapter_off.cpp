#include "adapters/adapter_off.h"

#include <memory>
#include <utility>

#include "trainer/nn/linear.h"

#include "nn/embedding.h"

namespace trainer {
namespace {

template <class Layer, class Use>
void use_lora(Module& module, const Use& use) {
  if (auto* layer = dynamic_cast<Layer*>(&module); layer != nullptr && layer->lora) use(*layer);
}

template <class Use>
void for_each_adapted(Model& model, const Use& use) {
  model.for_each_module([&](const std::string&, Module& module) {
    use_lora<Linear>(module, use);
    use_lora<Embedding>(module, use);
  });
}

}  // namespace

AdapterOff::AdapterOff(Model& model) {
  for_each_adapted(model, [&](auto& layer) {
    auto lora = std::make_shared<std::remove_reference_t<decltype(layer.lora)>>(std::move(layer.lora));
    put_back_.emplace_back([&layer, lora] { layer.lora = std::move(*lora); });
  });
}

AdapterOff::~AdapterOff() {
  for (const auto& put_back : put_back_) put_back();
}

bool has_adapter(Model& model) {
  bool found = false;
  for_each_adapted(model, [&](auto&) { found = true; });
  return found;
}

}  // namespace trainer
