// What operators were called with: their names, the sizes of tensors, and numbers.
#pragma once

#include <string>
#include <vector>

#include <ATen/record_function.h>

namespace trainer {

class CallLog {
 public:
  // Logs this thread's calls while it lives.
  CallLog();
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  const std::vector<std::string>& calls() const { return calls_; }

 private:
  std::vector<std::string> calls_;
  at::CallbackHandle handle_;
};

}  // namespace trainer
