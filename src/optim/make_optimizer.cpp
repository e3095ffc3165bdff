#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/optim/adafactor.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw_8bit.h"
#include "trainer/optim/optimizer.h"

namespace trainer {
namespace {

template <class Made>
std::unique_ptr<Optimizer> make(std::vector<TrainedParameter> parameters, const OptimizerConfig& config,
                                uint64_t seed) {
  return std::make_unique<Made>(std::move(parameters), config, seed);
}

// The names that `optimizer.name` may have (src/config/schema.cpp).
const std::map<std::string, OptimizerFactory>& factories() {
  static const std::map<std::string, OptimizerFactory> table{
      {"adamw", make<AdamW>}, {"adamw_8bit", make<AdamW8bit>}, {"adafactor", make<Adafactor>}};
  return table;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::vector<TrainedParameter> parameters,
                                          const OptimizerConfig& config, uint64_t seed) {
  const auto found = factories().find(config.name);
  if (found != factories().end()) return found->second(std::move(parameters), config, seed);
  std::vector<std::string> names;
  for (const auto& [name, factory] : factories()) names.push_back(name);
  throw ConfigError(concat("optimizer.name: there is no optimizer '", config.name,
                           "'; choose one of: ", join(names, ", ")));
}

}  // namespace trainer
