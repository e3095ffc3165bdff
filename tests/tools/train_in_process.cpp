// A run inside another process, for tests/gpu_check/gpu_check: Python's profiler of LibTorch then sees its
// kernels. Throws nothing; returns the exit code and puts the message on stderr.
#include <exception>
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/config/load.h"
#include "trainer/run/train.h"

extern "C" int train_in_process(int count, const char* const* overrides) {
  try {
    trainer::train(trainer::load_training_config({}, {overrides, overrides + count}));
    return static_cast<int>(trainer::ExitCode::done);
  } catch (const trainer::Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
