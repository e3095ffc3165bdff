#include "commands/library.h"

#include <map>
#include <string>
#include <utility>

namespace trainer {
namespace {

std::map<std::string, std::function<void(void*)>>& library_commands() {
  static std::map<std::string, std::function<void(void*)>> known;
  return known;
}

}  // namespace

void InLibrary::add(const char* command, std::function<void(void*)> run) {
  library_commands().emplace(command, std::move(run));
}

}  // namespace trainer

extern "C" int trainer_core_run(const char* command, void* options) {
  const auto& known = trainer::library_commands();
  const auto found = known.find(command);
  if (found == known.end()) return 1;
  found->second(options);
  return 0;
}
