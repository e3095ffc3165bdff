// Questions about what no card has run yet: does it work here?
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace trainer {

// Asks once about each key, and remembers. Safe to call from several threads.
class AskedOnce {
 public:
  // For the warning: what is asked about, what the numbers of a key are, and what is used where it does not
  // work.
  AskedOnce(const char* what, const char* numbers, const char* instead)
      : what_(what), numbers_(numbers), instead_(instead) {}

  // `fault` returns what is wrong, empty if nothing, or throws it. Running out of memory and a fault of the
  // device are thrown on: the answer is open.
  bool works(const std::vector<int64_t>& key, const std::function<std::string()>& fault);

 private:
  const char *what_, *numbers_, *instead_;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, bool> known_;
};

}  // namespace trainer
