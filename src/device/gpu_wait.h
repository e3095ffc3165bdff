// Waiting for a GPU: the lock that a waiting run takes, and a sleep that ends with Ctrl-C.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace trainer {

// Only one run that waited for a GPU can hold it at a time. There is a locked file for each GPU, named by its
// UUID, in a directory that every user of the machine can use. The system releases the lock when a process
// ends, however it ends.

// Returns the environment variable TRAINER_GPU_LOCKS, or /tmp/trainer-gpus without it. The directory must be
// the same for all users, so TMPDIR does not count.
std::filesystem::path gpu_lock_directory();

// Returns the name of the second lock of a GPU, which a run holds while it starts.
std::string name_of_start(const std::string& uuid);

class GpuLock {
 public:
  struct Attempt {
    std::unique_ptr<GpuLock> lock;  // null: not taken
    std::string holder;             // the other run that has it: "process 1234 of ann"
    std::string problem;            // why no file can be locked there; "" if one can
  };
  // `name`: a GPU's UUID, or name_of_start() of it.
  static Attempt try_take(const std::filesystem::path& directory, const std::string& name);

  ~GpuLock();
  GpuLock(const GpuLock&) = delete;
  GpuLock& operator=(const GpuLock&) = delete;

 private:
  explicit GpuLock(int fd) : fd_(fd) {}
  int fd_;
};

// Waiting that Ctrl-C ends cleanly.

// Sleeps for this time. Returns false if SIGINT or SIGTERM arrived, which then has no other effect.
// Afterwards the process handles (or ignores) these signals as before. Call from one thread at a time.
bool interruptible_sleep(double seconds);

}  // namespace trainer
