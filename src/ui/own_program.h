// This program once more, as a process that computes: a plan, or a conversation. So the page itself needs no
// LibTorch, and what a model takes is free again when its process has ended.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trainer::ui {

class OwnProgram {
 public:
  // Starts `trainer ARGUMENTS`. Throws Error when the system starts no process.
  explicit OwnProgram(std::vector<std::string> arguments);
  // Ends it: closes its input, and after half a second kills it.
  ~OwnProgram();
  OwnProgram(const OwnProgram&) = delete;
  OwnProgram& operator=(const OwnProgram&) = delete;

  // Returns false when it has ended.
  bool write(const std::string& line);
  void end_input();
  // Returns false at the end of its output.
  bool read(std::string& line);
  std::string read_all();
  void send(int signal);  // from any thread
  // Waits until it has ended; returns its exit code, or 128 and the number of the signal.
  int wait();
  bool has_ended();
  // Its error, or else all that it said to stderr; at most 2 kB.
  std::string problem();

 private:
  pid_t process_ = -1;
  int input_ = -1, said_ = -1;
  std::FILE* output_ = nullptr;
  std::mutex mutex_;
  int code_ = -1;  // -1: it has not ended
};

}  // namespace trainer::ui
