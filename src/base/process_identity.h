// The identity of the process that writes a file, and whether it still lives.
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

struct ProcessIdentity {
  std::string host;
  int64_t pid = 0;
  // Empty or 0: not known.
  std::string boot;           // id of the machine's start
  std::string pid_namespace;  // a container has its own numbers
  int64_t start = 0;          // in clock ticks since the machine's start: pids are used again
};

ProcessIdentity own_identity();

enum class Life { alive, dead, elsewhere };

// Returns whether the process lives; elsewhere: it is, or was, on another machine or in another container, so
// this one cannot know.
Life life_of(const ProcessIdentity& process);

}  // namespace trainer
