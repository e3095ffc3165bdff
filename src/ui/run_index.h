// The runs in and below some folders, looked for again and again by a thread of its own, so that no answer
// waits for a folder with very many of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "formats/run_status.h"

namespace trainer::ui {

struct KnownRun {
  std::string id;    // of hex digits: requests name a run by it, and never by a path
  std::string name;  // below the folder it was found in
  std::filesystem::path path;
  double changed = 0;  // when it last wrote its metrics or its status, in seconds since 1970
};

struct RunPage {
  std::vector<KnownRun> runs;
  size_t found = 0, total = 0;  // that fit the words, of all
  bool looking = false;         // the first look is not over
};

class RunIndex {
 public:
  // folders: as the user names them. Looks for the first time before it returns, for at most a second.
  explicit RunIndex(std::vector<std::filesystem::path> folders);
  ~RunIndex();
  RunIndex(const RunIndex&) = delete;
  RunIndex& operator=(const RunIndex&) = delete;

  // Returns `count` runs from `first` on, of those whose names have `words`, the newest first.
  RunPage page(const std::string& words, size_t first, size_t count);

  // Returns the run with this id; nothing if it is not known, or is no longer there.
  std::optional<KnownRun> find(const std::string& id);

  // Returns the runs that this process and others of this machine carry out now, by the end of the last look:
  // at most `most`, of those that wrote something within the last minutes.
  std::vector<std::pair<KnownRun, RunStatus>> running(size_t most);

  // Returns the status of a run. That of a run that has ended is kept until its files change.
  RunStatus status(const KnownRun& run);

 private:
  using Runs = std::shared_ptr<const std::vector<KnownRun>>;
  struct KeptStatus {
    std::string seen;
    RunStatus status;
  };

  void look_again_and_again(const std::stop_token& stop);
  std::vector<KnownRun> look() const;
  Runs runs();

  std::vector<std::filesystem::path> folders_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Runs runs_;  // the newest first; null before the first look
  std::unordered_map<std::string, size_t> places_;
  std::unordered_map<std::string, KeptStatus> statuses_;
  std::jthread looker_;  // last: it uses the others
};

}  // namespace trainer::ui
