// One run that waited for a GPU at a time holds it: a locked file for each GPU, by its UUID, in a directory
// that every user of the machine can use. The system takes the lock back when a process dies, however it
// dies.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace trainer {

// /tmp/trainer-gpus, or what the environment says as TRAINER_GPU_LOCKS. The same for all users, so not
// TMPDIR.
std::filesystem::path gpu_lock_directory();

class GpuLock {
 public:
  struct Attempt {
    std::unique_ptr<GpuLock> lock;  // null: not taken, because
    std::string holder;             // another has it: "process 1234 of ann",
    std::string problem;            // or no file can be locked there: why
  };
  static Attempt try_take(const std::filesystem::path& directory, const std::string& uuid);

  ~GpuLock();
  GpuLock(const GpuLock&) = delete;
  GpuLock& operator=(const GpuLock&) = delete;

 private:
  explicit GpuLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace trainer
