#include "trainer/observe/run.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/observe/jsonl_sink.h"

#include "observe/directory_lock.h"
#include "observe/earlier_results.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

void make_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error || !fs::is_directory(directory)) {
    throw FormatError(concat("output_dir ", directory.string(), ": cannot be created: ",
                             error ? error.message() : "it is a file", "; choose another output_dir"));
  }
}

// Whether `path` is `directory` or lies below it.
bool lies_in(const fs::path& path, const fs::path& directory) {
  const fs::path inner = fs::weakly_canonical(path), outer = fs::weakly_canonical(directory);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// A run must not write over what it starts from, nor remove it with an earlier run's results.
void protect_inputs(const Config& config, const fs::path& directory) {
  for (const std::string& input : {config.model.path, config.lora ? config.lora->adapter : std::string()}) {
    if (input.empty() || !fs::exists(input)) continue;
    const bool is_same = fs::exists(directory) && fs::equivalent(input, directory);
    if (is_same || (config.overwrite_output_dir && lies_in(input, directory))) {
      throw FormatError(concat("output_dir ", directory.string(), ": holds ", input,
                               ", which the run starts from; choose another output_dir"));
    }
  }
}

void start_log(const fs::path& path) {
  try {
    log::add_file(path.string());
  } catch (const std::exception& e) {
    throw FormatError(concat(path.string(), ": cannot be written: ", e.what()));
  }
}

[[noreturn]] void refuse_results(const fs::path& directory, const std::string& name) {
  throw FormatError(concat("output_dir ", directory.string(), ": holds another run's results (", name,
                           "); choose another output_dir, or replace them with overwrite_output_dir=true"));
}

}  // namespace

struct Run::State {
  State(const Config& config, const fs::path& directory, std::unique_ptr<DirectoryLock> lock)
      : directory(directory),
        lock(std::move(lock)),
        metrics(directory / "metrics.jsonl"),
        console(console_options(config.training.logging_steps)) {}

  fs::path directory;
  std::unique_ptr<DirectoryLock> lock;
  JsonlSink metrics;
  Console console;
};

Run::Run(std::unique_ptr<State> state) : state_(std::move(state)) {}
Run::Run(Run&&) noexcept = default;
Run::~Run() = default;

Run Run::open(const Config& config) {
  const fs::path directory = config.output_dir;
  make_directory(directory);
  protect_inputs(config, directory);
  auto results = find_results(directory);
  // A directory of results that are to stay gets no lock file; if it has one, its run may still be going.
  const bool is_refused = results && !config.overwrite_output_dir;
  if (is_refused && !fs::exists(DirectoryLock::file_in(directory))) refuse_results(directory, *results);
  auto lock = std::make_unique<DirectoryLock>(directory);
  results = find_results(directory);
  if (results && !config.overwrite_output_dir) refuse_results(directory, *results);
  if (results) remove_results(directory);
  remove_false_start(directory);

  write_atomically(directory / "config.yaml", [&](std::ostream& out) { write_yaml(config, out); });
  auto state = std::make_unique<State>(config, directory, std::move(lock));
  start_log(directory / "log.txt");
  return Run(std::move(state));
}

const fs::path& Run::directory() const { return state_->directory; }

Console& Run::console() { return state_->console; }

void Run::write(const MetricRow& row) {
  state_->metrics.write(row);
  state_->console.write(row);
}

}  // namespace trainer
