#include "data/pooled_file.h"

#include <list>
#include <mutex>
#include <utility>

#include "base/mappings.h"

namespace trainer {

struct PooledFile::State {
  using Mapped = std::pair<State*, std::shared_ptr<const MappedFile>>;

  State(std::filesystem::path file, ExitCode fault_code) : path(std::move(file)), code(fault_code) {}
  ~State() {
    const std::lock_guard lock(mutex);
    if (is_mapped) all.erase(place);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::filesystem::path path;
  const ExitCode code;
  bool is_mapped = false;
  std::list<Mapped>::iterator place;  // in `all`, if is_mapped

  static inline std::mutex mutex;       // guards all that changes
  static inline std::list<Mapped> all;  // the most recently used one comes first
};

PooledFile::PooledFile(std::filesystem::path path, ExitCode code)
    : state_(std::make_shared<State>(std::move(path), code)) {}

const std::filesystem::path& PooledFile::path() const { return state_->path; }

std::shared_ptr<const MappedFile> PooledFile::map() const {
  State& state = *state_;
  {
    const std::lock_guard lock(State::mutex);
    if (state.is_mapped) {
      State::all.splice(State::all.begin(), State::all, state.place);
      return state.place->second;
    }
  }
  // Without the lock: opening a file on a network file system takes a while.
  std::shared_ptr<const MappedFile> file = MappedFile::open(state.path);
  set_fault_code(*file, state.code);
  std::shared_ptr<const MappedFile> unused;  // unmapped after the lock is released
  const std::lock_guard lock(State::mutex);
  if (state.is_mapped) return state.place->second;  // another thread was faster
  State::all.emplace_front(&state, file);
  state.place = State::all.begin();
  state.is_mapped = true;
  if (State::all.size() > kMapped) {
    State::all.back().first->is_mapped = false;
    unused = std::move(State::all.back().second);
    State::all.pop_back();
  }
  return file;
}

}  // namespace trainer
