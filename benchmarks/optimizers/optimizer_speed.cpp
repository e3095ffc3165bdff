// Times the updates of optimizers on the CPU beside each other, on a tensor of many rows.
//
//   optimizer_speed [--threads 2] [--rows 8192] [--columns 2048] [NAME ...]
//
// NAME: adamw, adamw_8bit, adafactor; all of them if there is none.
//
// One line for each type of the weights and each optimizer: nanoseconds of processor time an element, all
// threads together, and how many times the first one's. The optimizers take turns; a figure is the median of
// the rounds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/optim/optimizer.h"

namespace {

using namespace trainer;

constexpr int kRounds = 15;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// One optimizer with a weight of its own.
struct Side {
  Side(const std::string& name, int64_t rows, int64_t columns, at::ScalarType type)
      : parameters{{"weight", at::randn({rows, columns}).to(type), true}},
        gradients(parameters, StateDtype::automatic) {
    OptimizerConfig config;
    config.name = name;
    optimizer = make_optimizer(parameters, config, 1);
    parameters[0].value.mutable_grad() = at::randn({rows, columns}).to(type);
  }

  // Returns nanoseconds an element.
  double update() {
    const at::Tensor norm = at::ones({});
    const std::clock_t begin = std::clock();
    optimizer->step(gradients, norm, 0.0, 1e-4);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return seconds * 1e9 / static_cast<double>(parameters[0].value.numel());
  }

  std::vector<TrainedParameter> parameters;
  Gradients gradients;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> times;
};

void compare(const std::vector<std::string>& names, int64_t rows, int64_t columns, at::ScalarType type) {
  std::vector<std::unique_ptr<Side>> sides;
  for (const std::string& name : names) {
    sides.push_back(std::make_unique<Side>(name, rows, columns, type));
    sides.back()->update();  // touches its memory
  }
  for (int round = 0; round < kRounds; round++) {
    for (const auto& side : sides) side->times.push_back(side->update());
  }
  const double first = median(sides.front()->times);
  for (size_t i = 0; i < names.size(); i++) {
    const double time = median(sides[i]->times);
    std::printf("%-9s %-16s %6.3f ns an element  %5.2f times %s\n", c10::toString(type), names[i].c_str(),
                time, time / first, names.front().c_str());
  }
}

}  // namespace

int main(int count, char** arguments) {
  int64_t threads = 2, rows = 8192, columns = 2048;
  std::vector<std::string> names;
  for (int i = 1; i < count; i++) {
    const std::string word = arguments[i];
    int64_t* number = word == "--threads"   ? &threads
                      : word == "--rows"    ? &rows
                      : word == "--columns" ? &columns
                                            : nullptr;
    if (number != nullptr && i + 1 < count) {
      *number = std::atoll(arguments[++i]);
    } else {
      names.push_back(word);
    }
  }
  if (names.empty()) names = {"adamw", "adamw_8bit", "adafactor"};
  at::set_num_threads(static_cast<int>(threads));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) compare(names, rows, columns, type);
  return 0;
}
