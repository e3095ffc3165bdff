// Answers a prompt:
//
//   generate MODEL PROMPT      MODEL: a model directory, or an adapter directory
#include "trainer/generation/generate.h"

#include <exception>
#include <iostream>

#include "trainer/adapters/lora.h"
#include "trainer/device/device.h"
#include "trainer/formats/peft.h"
#include "trainer/generation/generation_config.h"
#include "trainer/memory/device_memory.h"
#include "trainer/models/load_model.h"
#include "trainer/text/answer_text.h"
#include "trainer/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: generate MODEL PROMPT\n";
    return 2;
  }
  try {
    trainer::set_up_cpu(/*threads=*/0);  // OMP_NUM_THREADS, else as many as there are cores
    const at::Device device = trainer::choose_device("auto");
    const auto tokenizer = trainer::load_tokenizer(argv[1]);
    const auto model = trainer::load_model_or_adapter(
        argv[1], {.device = device, .dtype = trainer::automatic_dtype(device)});

    // What the model's generation_config.json says; training ends answers with the tokenizer's end token.
    trainer::GenerationConfig config =
        trainer::read_generation_config(trainer::base_directory(argv[1]), model->vocab_size());
    config.max_new_tokens = 100;
    if (const auto end = tokenizer->eos_id()) config.eos_token_ids.push_back(*end);

    const trainer::Tokens prompt = tokenizer->encode(argv[2], /*add_special_tokens=*/true);
    const auto answers = trainer::generate(*model, {prompt}, config, device);
    std::cout << trainer::AnswerText(*tokenizer, /*stops=*/{}).text(answers.front().front()) << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
