#include "base/warn_once.h"

#include <mutex>
#include <set>

#include "trainer/base/log.h"

namespace trainer {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::lock_guard lock(mutex);
  if (logged.insert(text).second) log::warning(text);
}

}  // namespace trainer
