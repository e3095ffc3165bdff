// Answers prompts on the CPU, a round for each line of stdin, for benchmarks/generation/side_by_side.
//
//   answers MODEL PROMPTS.json fp32|bf16 BATCH_SIZE MAX_NEW_TOKENS BEAMS
//
// PROMPTS.json is a list of lists of token ids. After each round one JSON object goes to stdout: its seconds,
// the seconds of the processor of all threads, and the answers as token ids. No token
// ends an answer, so that all have MAX_NEW_TOKENS.
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
#include "trainer/memory/oom.h"

#include "run/run_model.h"

namespace {

using namespace trainer;

struct Work {
  std::vector<Tokens> prompts;
  GenerationConfig config;
  int64_t batch_size = 8;
};

nlohmann::json answered(const OpenModel& opened, const Work& work) {
  OomHandler batch_size(work.batch_size);
  std::vector<std::vector<Tokens>> answers;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  generate_in_batches(*opened.model, work.prompts, work.config, at::kCPU, batch_size, {},
                      [&](size_t, const std::vector<Tokens>& of_one) { answers.push_back(of_one); });
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {{"seconds", wall.count()},
          {"processor", static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC},
          {"answers", answers}};
}

void run(char** argv) {
  set_up_cpu(/*threads=*/0);
  ModelConfig config;
  config.path = argv[1];
  config.dtype = argv[3] == std::string("bf16") ? ModelDtype::bf16 : ModelDtype::fp32;
  const OpenModel opened = open_model(config, at::kCPU);
  std::ifstream in(argv[2]);
  Work work;
  work.prompts = nlohmann::json::parse(in).get<std::vector<Tokens>>();
  work.batch_size = std::stoll(argv[4]);
  work.config.max_new_tokens = std::stoll(argv[5]);
  work.config.num_beams = std::stoll(argv[6]);
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << answered(opened, work) << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "usage: answers MODEL PROMPTS.json fp32|bf16 BATCH_SIZE MAX_NEW_TOKENS BEAMS\n";
    return 2;
  }
  try {
    run(argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
