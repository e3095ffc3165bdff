// The part of a command that runs in libtrainer_core.so, the library that links LibTorch.
#pragma once

#include <functional>

#include "commands/options.h"

namespace trainer {

// Makes a function known as the library's part of the command that has these options. A file of commands/ has
// one of it.
class InLibrary {
 public:
  template <class Options>
  explicit InLibrary(void (*run)(Options& options)) {
    add(Options::kCommand, [run](void* options) { run(*static_cast<Options*>(options)); });
  }

 private:
  static void add(const char* command, std::function<void(void*)> run);
};

}  // namespace trainer
