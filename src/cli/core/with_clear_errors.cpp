#include "cli/core/with_clear_errors.h"

#include <string>

#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

void with_clear_errors(const std::function<void()>& command) {
  try {
    command();
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    const bool on_host = what.find("DefaultCPUAllocator") != std::string::npos;  // it has no type of its own
    if (dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr || on_host) {
      throw OutOfMemoryError(
          concat("out of memory: ", what,
                 "\nLower training.batch_size (the effective batch can stay: set "
                 "training.effective_batch_size), or use memory.gradient_checkpointing=true"));
    }
    throw std::runtime_error(what);
  }
}

}  // namespace trainer
