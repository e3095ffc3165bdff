// Measures the pass over the prompts of a batch on the CPU, packed beside padded.
//
//   prefill MODEL ROWS.jsonl PROMPTS ROUNDS [fp32|bf16]
//
// The prompts are the field `input` of the first rows. Both ways answer the same batch with one token,
// alternately, after one round that is not shown. Processor seconds are those of all threads.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/generation/generate.h"
#include "trainer/memory/device_memory.h"

#include "run/run_model.h"

namespace {

using namespace trainer;

struct Seconds {
  double wall = 0, processor = 0;
};

Seconds seconds_of(const OpenModel& opened, const std::vector<Tokens>& prompts, bool packing) {
  GenerationConfig config;
  config.max_new_tokens = 1;
  config.packing = packing;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  generate(*opened.model, prompts, config, at::kCPU);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {wall.count(), static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC};
}

std::vector<Tokens> prompts_in(const std::string& file, const Tokenizer& tokenizer, size_t count) {
  std::ifstream in(file);
  std::vector<Tokens> prompts;
  for (std::string line; prompts.size() < count && std::getline(in, line);)
    prompts.push_back(tokenizer.encode(nlohmann::json::parse(line).at("input").get<std::string>(), true));
  return prompts;
}

void measure(const OpenModel& opened, const std::vector<Tokens>& prompts, int rounds) {
  size_t tokens = 0, longest = 0;
  for (const Tokens& prompt : prompts) {
    tokens += prompt.size();
    longest = std::max(longest, prompt.size());
  }
  std::cout << prompts.size() << " prompts, " << tokens << " tokens, padded " << prompts.size() * longest
            << "\n";
  for (int round = 0; round <= rounds; round++) {
    const Seconds packed = seconds_of(opened, prompts, true), padded = seconds_of(opened, prompts, false);
    if (round == 0) continue;
    std::cout << "round " << round << ": packed " << packed.wall << " s, " << packed.processor
              << " s of the processor; padded " << padded.wall << " s, " << padded.processor << " s"
              << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 6) {
    std::cerr << "usage: prefill MODEL ROWS.jsonl PROMPTS ROUNDS [fp32|bf16]\n";
    return 2;
  }
  try {
    set_up_cpu(/*threads=*/0);
    ModelConfig config;
    config.path = argv[1];
    config.dtype = argc == 6 && argv[5] == std::string("bf16") ? ModelDtype::bf16 : ModelDtype::fp32;
    const OpenModel opened = open_model(config, at::kCPU);
    measure(opened, prompts_in(argv[2], *opened.tokenizer, std::stoul(argv[3])), std::stoi(argv[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
