#include "trainer/run/translate_torch_errors.h"

#include <string>

#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

namespace trainer {

void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command) {
  std::optional<OutOfMemory> lack;
  try {
    lack = catch_oom(command);
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    if (is_device_fault(e))
      throw DeviceFault(concat("the GPU reported an error and cannot be used further: ", what));
    throw std::runtime_error(what);
  }
  if (lack) throw OutOfMemoryError(concat(lack->message, "\n", memory_advice));
}

}  // namespace trainer
