#include "ui/run_index.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <sys/stat.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/text.h"
#include "report/report.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kSilentSeconds = 600;  // a run writes its status every ten seconds
constexpr size_t kMostStatuses = 2000;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// 0 if it is not there.
double changed_at(const fs::path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return 0;
  return static_cast<double>(facts.st_mtim.tv_sec) + static_cast<double>(facts.st_mtim.tv_nsec) * 1e-9;
}

std::string id_of(const fs::path& path) { return checksum(fs::absolute(path).lexically_normal().string()); }

std::string name_of_run(const fs::path& path, const fs::path& folder, bool is_only_folder) {
  std::string name = path.lexically_relative(folder).string();
  if (name.empty() || name == ".") {
    const fs::path whole = fs::absolute(path).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  }
  return is_only_folder ? name : (folder / name).lexically_normal().string();
}

bool goes_on(const RunStatus& status) {
  return status.state == RunPhase::running || status.state == RunPhase::starting ||
         status.state == RunPhase::silent;
}

}  // namespace

RunIndex::RunIndex(std::vector<fs::path> folders) : folders_(std::move(folders)) {
  looker_ = std::jthread([this](const std::stop_token& stop) { look_again_and_again(stop); });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(1), [this] { return runs_ != nullptr; });
}

RunIndex::~RunIndex() = default;

// A look takes at most a twentieth of the time of one processor.
void RunIndex::look_again_and_again(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto begin = Clock::now();
    std::vector<KnownRun> found;
    try {
      found = look();
    } catch (const std::exception&) {  // the folder that they are in was deleted: none is there
    }
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < found.size(); i++) places.emplace(found[i].id, i);
    std::unique_lock lock(mutex_);
    runs_ = std::make_shared<const std::vector<KnownRun>>(std::move(found));
    places_ = std::move(places);
    changed_.notify_all();
    const auto pause = std::max<Clock::duration>(std::chrono::seconds(3), 20 * (Clock::now() - begin));
    changed_.wait_for(lock, stop, pause, [] { return false; });
  }
}

std::vector<KnownRun> RunIndex::look() const {
  std::vector<KnownRun> found;
  std::set<std::string> known;
  for (const fs::path& folder : folders_) {
    for (const fs::path& path : find_runs(folder)) {
      KnownRun run{id_of(path), name_of_run(path, folder, folders_.size() == 1), path,
                   std::max(changed_at(path / "metrics.jsonl"), changed_at(path / kStatusFile))};
      if (known.insert(run.id).second) found.push_back(std::move(run));
    }
  }
  std::ranges::stable_sort(found, std::greater<>(), &KnownRun::changed);
  return found;
}

RunIndex::Runs RunIndex::runs() {
  const std::scoped_lock lock(mutex_);
  return runs_;
}

RunPage RunIndex::page(const std::string& words, size_t first, size_t count) {
  const Runs all = runs();
  RunPage page;
  page.looking = all == nullptr;
  if (!all) return page;
  page.total = all->size();
  const std::string wanted = lower_case(words);
  for (const KnownRun& run : *all) {
    if (!wanted.empty() && lower_case(run.name).find(wanted) == std::string::npos) continue;
    if (page.found >= first && page.runs.size() < count) page.runs.push_back(run);
    page.found++;
  }
  return page;
}

std::optional<KnownRun> RunIndex::find(const std::string& id) {
  std::unique_lock lock(mutex_);
  const auto place = places_.find(id);
  if (place == places_.end()) return std::nullopt;
  KnownRun run = (*runs_)[place->second];
  lock.unlock();
  std::error_code failed;
  return fs::is_directory(run.path, failed) ? std::optional(std::move(run)) : std::nullopt;
}

RunStatus RunIndex::status(const KnownRun& run) {
  const std::string seen = concat(stamp_of(run.path / kStatusFile), " ", stamp_of(run.path / "metrics.jsonl"),
                                  " ", stamp_of(run.path / ".lock"));
  {
    const std::scoped_lock lock(mutex_);
    const auto kept = statuses_.find(run.id);
    if (kept != statuses_.end() && kept->second.seen == seen && !goes_on(kept->second.status))
      return kept->second.status;
  }
  RunStatus status = read_run_status(run.path, seconds_since_1970());
  const std::scoped_lock lock(mutex_);
  if (statuses_.size() >= kMostStatuses) statuses_.clear();
  statuses_[run.id] = {seen, status};
  return status;
}

std::vector<std::pair<KnownRun, RunStatus>> RunIndex::running(size_t most) {
  std::vector<std::pair<KnownRun, RunStatus>> list;
  const Runs all = runs();
  if (!all) return list;
  const double moment = seconds_since_1970();
  for (const KnownRun& run : *all) {
    if (moment - run.changed > kSilentSeconds || list.size() >= most) break;  // the newest come first
    try {
      RunStatus known = status(run);
      if (known.state != RunPhase::running && known.state != RunPhase::starting) continue;
      if (life_of(known.process) == Life::alive) list.emplace_back(run, std::move(known));
    } catch (const Error&) {  // deleted by now
    }
  }
  return list;
}

}  // namespace trainer::ui
