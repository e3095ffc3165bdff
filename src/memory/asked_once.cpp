#include "memory/asked_once.h"

#include <exception>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

#include "base/text.h"

namespace trainer {

bool AskedOnce::works(const std::vector<int64_t>& key, const std::function<std::string()>& fault) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::string why;
  try {
    why = fault();
  } catch (const std::exception& error) {
    if (is_oom(error) || is_device_fault(error)) throw;
    why = first_line(error.what());
  }
  const std::string what = concat(what_, " (", numbers_, " ", shape_string(key), ")");
  why.empty() ? log::debug(what + " works")
              : log::warning(concat(instead_, " is used instead of ", what, ": ", why));
  return known_[key] = why.empty();
}

}  // namespace trainer
