// A whole run, as the program makes it, with your own code receiving its metrics: each step becomes a line of
// CSV on stdout.
//
//   metric_sink my.yaml [key=value …] >losses.csv
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/base/metrics.h"
#include "trainer/config/load.h"
#include "trainer/run/train.h"

namespace {

class CsvSink : public trainer::MetricSink {
 public:
  CsvSink() { std::cout << "step,loss,learning_rate,tokens_per_second" << std::endl; }

  // Rows of other kinds report evaluations and saves (docs/metrics.md).
  void write(const trainer::MetricRow& row) override {
    if (row.kind != "train") return;
    std::cout << row.values["step"] << ',' << row.values["loss"] << ',' << row.values["learning_rate"] << ','
              << row.values["tokens_per_second"] << std::endl;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: metric_sink CONFIG [key=value …]\n";
    return 2;
  }
  try {
    CsvSink csv;
    trainer::train(trainer::load_training_config(argv[1], {argv + 2, argv + argc}), {&csv});
  } catch (const trainer::Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(error.code());  // docs/errors.md
  }
}
