#include "run/output_directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"

#include "base/file_facts.h"
#include "base/foreign_errors.h"
#include "formats/foreign_checkpoint.h"
#include "observe/file_sinks.h"
#include "run/curves.h"
#include "run/earlier_results.h"
#include "run/output_place.h"

namespace trainer {

namespace fs = std::filesystem;
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Returns what the lock's holder wrote: "process 1234 on HOST".
std::string holder(int fd) {
  std::array<char, 512> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  std::string name(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  name.erase(name.find_last_not_of('\n') + 1);
  return name.empty() ? "another process" : name;
}

[[noreturn]] void refuse_in_use(const fs::path& directory, const std::string& by) {
  throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is in use by ", by,
                                    "; wait for it to end, or choose another output_dir"));
}

// The lock on an output directory: flock on DIRECTORY/.lock and on the directory itself, so that it holds
// when somebody removes the file. The lock ends with the process that holds it. The file is removed at the
// end; a file left by a killed process locks nothing. On a file system without locks, only a warning is
// logged.
class DirectoryLock {
 public:
  // Throws OutputDirectoryError when another process holds the lock (the message names it, from the text in
  // the file), or the file cannot be created.
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  static std::filesystem::path file_in(const std::filesystem::path& directory);

 private:
  void open_and_lock(const std::filesystem::path& directory);
  void lock_directory(const std::filesystem::path& directory);
  bool is_still_there() const;

  std::filesystem::path file_;
  int fd_ = -1, directory_fd_ = -1;
};

fs::path DirectoryLock::file_in(const fs::path& directory) { return directory / ".lock"; }

DirectoryLock::DirectoryLock(const fs::path& directory) : file_(file_in(directory)) {
  lock_directory(directory);
  do {  // until the locked file is the one that others see: a run that ends removes its file
    if (fd_ >= 0) ::close(fd_);
    open_and_lock(directory);
  } while (!is_still_there());
  // Only for messages: the lock holds without it (disk full) too.
  const std::string text = concat("process ", ::getpid(), " on ", host_name(), "\n");
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) ::ftruncate(fd_, 0);
}

// Some file systems can lock only files, not directories; then the lock on the file has to do.
void DirectoryLock::lock_directory(const fs::path& directory) {
  directory_fd_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd_ < 0 || ::flock(directory_fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(directory_fd_);
  const int fd = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const std::string by = fd < 0 ? "another process" : holder(fd);
  if (fd >= 0) ::close(fd);
  refuse_in_use(directory, by);
}

void DirectoryLock::open_and_lock(const fs::path& directory) {
  // Does not follow a link, because its target would be overwritten.
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (fd_ < 0) {
    const int error = errno;
    ::close(directory_fd_);
    if (error == ELOOP) {
      throw OutputDirectoryError(
          concat("output_dir ", directory.string(), ": ", file_.string(),
                 " is a link, not a lock file; remove it, or choose another output_dir"));
    }
    errno = error;
    throw OutputDirectoryError(concat("output_dir ", directory.string(), ": is not writable: ",
                                      std::strerror(errno), "; choose another output_dir"));
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP) {  // some network file systems
    log::warning(concat("output_dir ", directory.string(), ": this file system has no locks (",
                        std::strerror(error), "): make sure that no other run writes there"));
    return;
  }
  const std::string by = holder(fd_);
  ::close(fd_);
  ::close(directory_fd_);
  if (error == EWOULDBLOCK) refuse_in_use(directory, by);
  throw OutputDirectoryError(
      concat("output_dir ", directory.string(), ": cannot be locked: ", std::strerror(error)));
}

bool DirectoryLock::is_still_there() const {
  struct stat ours {
  }, there{};
  return ::fstat(fd_, &ours) == 0 && ::lstat(file_.c_str(), &there) == 0 && ours.st_ino == there.st_ino;
}

DirectoryLock::~DirectoryLock() {
  if (is_still_there()) ::unlink(file_.c_str());
  ::close(fd_);
  if (directory_fd_ >= 0) ::close(directory_fd_);
}

// Creates the directory and its parents; returns what was created, deepest first.
std::vector<fs::path> make_directory(const fs::path& directory) {
  std::vector<fs::path> made;
  std::error_code error;
  for (fs::path path = fs::absolute(directory).lexically_normal();
       !fs::exists(path, error) && path.has_relative_path(); path = path.parent_path()) {
    if (path.has_filename()) made.push_back(path);
  }
  fs::create_directories(directory, error);
  if (error || !fs::is_directory(directory)) {
    throw OutputDirectoryError(concat("output_dir ", directory.string(),
                                      ": cannot be created: ", error ? error.message() : "it is a file",
                                      "; choose another output_dir"));
  }
  return made;
}

// Throws when the path is the directory of a run instead of a checkpoint in it.
void refuse_run_as_checkpoint(const fs::path& path) {
  const std::vector<int64_t> steps = checkpoint_steps(path);
  std::error_code ignored;
  if (steps.empty() || fs::exists(path / kManifestFile, ignored)) return;
  const fs::path newest = checkpoint_path(path, steps.back());
  if (const std::string program = foreign_program(newest); !program.empty())
    throw of_family(ErrorCode::checkpoint,
                    FormatError(concat("resume: ", path.string(), ": holds ", newest.filename().string(),
                                       " of another program, ", program, "; no run can resume from it. Of ",
                                       newest.string(), ": ", how_to_start_from(newest))));
  throw of_family(ErrorCode::checkpoint,
                  FormatError(concat("resume: ", path.string(),
                                     " is the directory of a run; give a checkpoint in it, the newest is ",
                                     newest.string())));
}

// A run must not overwrite what it starts from, nor remove it with an earlier run's results.
void protect_inputs(const Config& config, const fs::path& directory) {
  const bool names_checkpoint = config.resume != "auto" && config.resume != "never";
  if (names_checkpoint) refuse_run_as_checkpoint(config.resume);
  for (const std::string& input : {config.model.path, config.lora ? config.lora->adapter : std::string(),
                                   names_checkpoint ? config.resume : std::string()}) {
    if (input.empty() || !fs::exists(input)) continue;
    const bool is_same = fs::exists(directory) && fs::equivalent(input, directory);
    if (is_same || (config.overwrite_output_dir && lies_below(input, directory))) {
      throw OutputDirectoryError(concat("output_dir ", directory.string(), ": holds ", input,
                                        ", which the run starts from; choose another output_dir"));
    }
  }
}

void start_log(const fs::path& path) {
  try {
    log::add_file(path.string());
  } catch (const std::exception& e) {
    throw OutputDirectoryError(concat(path.string(), ": cannot be written: ", own_words(e)));
  }
}

[[noreturn]] void refuse_other_program(const fs::path& directory, const ForeignCheckpoint& found) {
  throw OutputDirectoryError(concat("output_dir ", directory.string(), ": holds ", found.what,
                                    "; no run can resume from it, and it is not removed: choose another "
                                    "output_dir. Of ",
                                    found.path.string(), ": ", how_to_start_from(found.path)));
}

[[noreturn]] void refuse_results(const fs::path& directory, const std::string& name) {
  throw OutputDirectoryError(
      concat("output_dir ", directory.string(), ": holds another run's results (", name,
             "); choose another output_dir, or replace them with overwrite_output_dir=true"));
}

[[noreturn]] void refuse_foreign(const fs::path& directory, const std::string& name) {
  throw OutputDirectoryError(
      concat("output_dir ", directory.string(), ": holds ", name,
             ", and nothing shows that a run made it (no metrics.jsonl, no trainer_position.json); it "
             "is not removed: choose another output_dir"));
}

}  // namespace

struct OutputDirectory::State {
  explicit State(const Config& given)
      : config(given), directory(given.output_dir), console({given.training.logging_steps}) {}

  // A run that never began leaves nothing behind.
  ~State() {
    curves.reset();
    lock.reset();
    if (metrics) return;
    std::error_code ignored;
    for (const fs::path& made : made_directories) fs::remove(made, ignored);  // only if it is empty
  }

  Config config;
  fs::path directory;
  std::vector<fs::path> made_directories;
  bool is_silent = false;
  std::unique_ptr<DirectoryLock> lock;
  std::optional<JsonlSink> metrics;
  std::optional<StatusFile> status;
  Console console;
  std::optional<Curves> curves;
  std::vector<MetricSink*> sinks;
};

OutputDirectory::OutputDirectory(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputDirectory::OutputDirectory(OutputDirectory&&) noexcept = default;
OutputDirectory::~OutputDirectory() = default;

OutputDirectory OutputDirectory::open(const Config& config) {
  auto state = std::make_unique<State>(config);
  const fs::path& directory = state->directory;
  refuse_shared_place(directory);
  state->made_directories = make_directory(directory);
  protect_inputs(config, directory);
  auto results = find_results(directory);
  // A directory whose results have to stay gets no lock file. If it has one, its run may still be running.
  const auto is_refused = [&] {
    return results && !config.overwrite_output_dir && (config.resume == "never" || !can_go_on(directory));
  };
  const auto refuse = [&] {
    // Beside the results of a run that goes on, it is nothing to this one.
    if (!results || is_refused() || config.overwrite_output_dir) {
      if (const auto foreign = foreign_entry(directory)) refuse_other_program(directory, *foreign);
    }
    if (is_refused()) refuse_results(directory, *results);
    if (results && config.overwrite_output_dir && !is_run_directory(directory))
      refuse_foreign(directory, *results);
  };
  if (!has_entry(DirectoryLock::file_in(directory))) refuse();
  state->lock = std::make_unique<DirectoryLock>(directory);
  results = find_results(directory);
  refuse();
  return OutputDirectory(std::move(state));
}

OutputDirectory OutputDirectory::of_other_rank(const Config& config) {
  auto state = std::make_unique<State>(config);
  state->is_silent = true;
  return OutputDirectory(std::move(state));
}

void OutputDirectory::begin(const RunPosition& start, bool keeps_results) {
  if (state_->is_silent) return;
  const fs::path& directory = state_->directory;
  if (!keeps_results) {
    if (find_results(directory)) remove_results(directory);
    remove_false_start(directory);
  }
  remove_halves(directory);
  write_atomically(directory / "config.yaml", [&](std::ostream& out) { write_yaml(state_->config, out); });
  RunPosition position;
  position.fixed = start.fixed;
  position.began_from = start.began_from;
  write_position(directory, position);
  state_->metrics.emplace(directory / "metrics.jsonl");
  if (keeps_results) state_->metrics->keep_first(start.metrics_bytes);
  start_log(directory / "log.txt");
  state_->curves.emplace(state_->config, directory, keeps_results ? start.step : 0);
  state_->status.emplace(directory, state_->config.model.path);
}

const fs::path& OutputDirectory::directory() const { return state_->directory; }

bool OutputDirectory::has_results() const { return find_results(state_->directory).has_value(); }

int64_t OutputDirectory::metrics_bytes() { return state_->metrics ? state_->metrics->synced_bytes() : 0; }

void OutputDirectory::start(const StartBlock& block, const RunOutlook& outlook, int64_t step) {
  if (state_->is_silent) return;
  state_->console.start(block, outlook);
  if (state_->status) state_->status->start(outlook, step);
}

void OutputDirectory::finish() {
  if (!state_->is_silent) state_->console.finish();
}

void OutputDirectory::end(RunPhase phase, int exit_code, const std::string& message) {
  if (state_->status) state_->status->end(phase, exit_code, message);
}

void OutputDirectory::add_sink(MetricSink& sink) { state_->sinks.push_back(&sink); }

void OutputDirectory::show(const Predictions& predictions, int64_t step) {
  if (state_->curves) state_->curves->add_predictions(predictions, step);
}

void OutputDirectory::finish_curves() {
  if (state_->curves) state_->curves->finish();
}

void OutputDirectory::write(const MetricRow& row) {
  if (state_->is_silent) return;
  if (state_->metrics) state_->metrics->write(row);
  if (state_->status) state_->status->write(row);
  state_->console.write(row);
  if (state_->curves) state_->curves->add(row);
  for (MetricSink* sink : state_->sinks) sink->write(row);
}

void OutputDirectory::write_best(const MetricRow& evaluation) {
  if (state_->is_silent) return;
  for (MetricSink* sink : state_->sinks) sink->write_best(evaluation);
}

}  // namespace trainer
