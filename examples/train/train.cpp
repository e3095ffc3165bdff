// Trains step by step, with a loop of your own:
//
//   train my.yaml [key=value …]      keys as for the program `trainer`
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "trainer/adapters/lora.h"
#include "trainer/config/load.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/models/load_model.h"
#include "trainer/run/artefacts.h"
#include "trainer/run/run_length.h"
#include "trainer/text/tokenizer.h"
#include "trainer/training/trainer.h"

namespace {

void train(const trainer::Config& config) {
  trainer::set_up_cpu(config.training.num_threads);
  const at::Device device = trainer::choose_device(config.device);

  // The model; with LoRA its weights are frozen and adapters are added.
  const auto tokenizer = trainer::load_tokenizer(config.model.path);
  const auto model = trainer::load_model(config.model.path,
                                         {.device = device, .dtype = at::kFloat, .train_all = !config.lora});
  trainer::Artefacts artefacts;
  artefacts.base = config.model.path;
  if (config.lora) {
    artefacts.adapter = trainer::apply_lora(*model, *config.lora, config.seed, device);
    artefacts.adapter->base_model_name_or_path = std::filesystem::absolute(config.model.path);
  }

  const auto data = trainer::Dataset::open_train(config, *tokenizer, model->encoder_decoder());
  for (const std::string& line : data.report().lines()) std::cerr << line << '\n';

  // A step gets the next samples of a seeded order. The trainer splits them into micro-batches internally.
  const trainer::SampleOrder order(data.sets(), config.data.shuffle, config.seed);
  const trainer::RunLength length = trainer::run_length(config, order.epoch_size());
  trainer::Trainer run(config, *model, device, length.total_steps);
  int64_t samples_seen = 0;
  for (int64_t step = 1; step <= length.total_steps; step++) {
    const std::vector<int64_t> indices = order.step_at(samples_seen, config.effective_batch_size());
    const trainer::StepResult result = run.step(trainer::load_effective_batch(data, indices));
    samples_seen += static_cast<int64_t>(indices.size());
    std::cout << "step " << step << " loss " << result.loss << " grad_norm " << result.grad_norm << std::endl;
  }

  artefacts.save(*model, config.output_dir);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: train CONFIG [key=value …]\n";
    return 2;
  }
  try {
    train(trainer::load_training_config(argv[1], {argv + 2, argv + argc}));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
