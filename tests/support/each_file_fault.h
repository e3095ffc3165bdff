// Repeats work on files, once for every way in which one of its file operations can fail.
#pragma once

#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "base/file_calls.h"

namespace trainer::test {

// The file layer fails so while this lives.
class FileFaultScope {
 public:
  explicit FileFaultScope(const FileFault& fault) { set_file_fault(fault); }
  ~FileFaultScope() { set_file_fault(std::nullopt); }
  FileFaultScope(const FileFaultScope&) = delete;
  FileFaultScope& operator=(const FileFaultScope&) = delete;
};

// Faults after which the process goes on.
inline std::vector<FileFault> failures_at(int64_t operation) {
  std::vector<FileFault> faults;
  for (int error : {ENOSPC, EIO, EACCES}) {
    faults.push_back({operation, FaultKind::error, error});
    faults.push_back({operation, FaultKind::error, error, /*lasting=*/true});
  }
  faults.push_back({operation, FaultKind::cut});
  return faults;
}

inline std::string name_of(const FileFault& fault) {
  return "operation " + std::to_string(fault.operation) + ", kind " +
         std::to_string(static_cast<int>(fault.kind)) + ", errno " + std::to_string(fault.error) +
         (fault.lasting ? ", lasting" : "");
}

// The operations that `work` makes when nothing fails.
inline int64_t operations_of(const std::function<void()>& work) {
  set_file_fault(std::nullopt);
  work();
  return count_file_operations();
}

// Runs `work` in a process of its own that ends by the fault. Returns whether it did so.
inline bool ends_by(const FileFault& fault, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    set_file_fault(fault);
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == kCrashExitCode || WEXITSTATUS(status) == 0))
      << name_of(fault) << " ended otherwise: " << status;
  return WIFEXITED(status) && WEXITSTATUS(status) == kCrashExitCode;
}

}  // namespace trainer::test
