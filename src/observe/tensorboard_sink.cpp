#include "observe/tensorboard_sink.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "events.out.tfevents.";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Oldest first: the names begin with the time.
std::vector<fs::path> event_files(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (at->path().filename().string().starts_with(kPrefix)) files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// TensorBoard reads files in the order of their names and never goes back: the time in a new name is after
// those in others, also if the clock was set back.
fs::path new_file(const fs::path& directory) {
  int64_t time = static_cast<int64_t>(seconds_since_1970());
  for (const fs::path& file : event_files(directory)) {
    const std::string digits = file.filename().string().substr(kPrefix.size(), 10);
    if (digits.find_first_not_of("0123456789") == std::string::npos && !digits.empty())
      time = std::max<int64_t>(time, std::stoll(digits) + 1);
  }
  char number[24];
  std::snprintf(number, sizeof number, "%010lld", static_cast<long long>(time));
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return directory / concat(kPrefix, number, ".", *host ? host : "host", ".", ::getpid());
}

// The tag of a value of a train row, with its group; "" if it is not shown.
std::string train_tag(const std::string& key) {
  if (key == "loss" || key == "grad_norm" || key == "learning_rate" || key == "epoch") return "train/" + key;
  if (key.ends_with("_per_second") || key.ends_with("_seconds")) return "speed/" + key;
  if (key.starts_with("memory_")) return "memory/" + key.substr(7);
  if (key.starts_with("reward_") || key.starts_with("logps_") || key == "kl") return "answers/" + key;
  if (key == "retries" || key == "recomputed_blocks") return "memory/" + key;
  return "";
}

std::string eval_tag(const std::string& key) {
  return key.starts_with("eval_") ? "eval/" + key.substr(5) : "";
}

void remove_if_possible(const fs::path& path) {
  try {
    if (!path.empty()) delete_entry(path);
  } catch (const FormatError& e) {
    log::debug(e.what());
  }
}

}  // namespace

TensorboardSink::TensorboardSink(fs::path directory, int64_t last_step, std::chrono::milliseconds retry)
    : directory_(std::move(directory)), last_step_(last_step), retry_(retry) {
  try {
    forget_after(last_step);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), ": TensorBoard may show steps that are repeated twice"));
  }
}

void TensorboardSink::forget_after(int64_t last_step) {
  for (const fs::path& path : event_files(directory_)) {
    const auto file = MappedFile::open(path);
    const int64_t kept = bytes_up_to_step(file->text(), last_step);
    if (kept == 0) {
      delete_entry(path);
    } else if (kept < static_cast<int64_t>(file->size())) {
      AppendedFile(path).truncate(kept);
    }
  }
}

void TensorboardSink::begin(const std::string& configuration, const nlohmann::ordered_json& hparams) {
  TensorboardEvent event(seconds_since_1970(), last_step_);
  event.add_text("configuration", concat("```yaml\n", configuration, "\n```"));
  event.add_hparams(hparams);
  first_records_ = event.record();
  open();
}

// A new file after each failure: what a failed write may have left at the end of the last one does no harm.
bool TensorboardSink::open() {
  if (file_) return true;
  if (failed_ && std::chrono::steady_clock::now() - *failed_ < retry_) return false;
  fs::path path;
  try {
    make_directories(directory_);
    path = new_file(directory_);
    file_.emplace(path);
    const double now = seconds_since_1970();
    file_->append(tensorboard_version_record(now) + tensorboard_start_record(now, last_step_ + 1) +
                  first_records_);
    failed_.reset();
    return true;
  } catch (const FormatError& e) {
    fail(e.what());
    remove_if_possible(path);
    return false;
  }
}

void TensorboardSink::append(const TensorboardEvent& event) {
  if (event.is_empty() || !open()) return;
  try {
    file_->append(event.record());
  } catch (const FormatError& e) {
    fail(e.what());
  }
}

void TensorboardSink::fail(const std::string& problem) {
  file_.reset();
  failed_ = std::chrono::steady_clock::now();
  if (!std::exchange(warned_, true)) {
    log::warning(concat("an event for TensorBoard is lost: ", problem,
                        "; training continues, and events are written again when that is possible"));
  }
}

void TensorboardSink::write(const MetricRow& row) {
  const bool is_train = row.kind == "train";
  if (!is_train && row.kind != "eval" && row.kind != "recovery") return;
  const int64_t step = row.values.value("step", int64_t{0});
  if (row.kind == "recovery") {
    write_text("recoveries",
               "`" + row.values.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "`", step);
    return;
  }
  TensorboardEvent event(seconds_since_1970(), step);
  for (const auto& [key, value] : row.values.items()) {
    if (!value.is_number()) continue;
    if (const std::string tag = is_train ? train_tag(key) : eval_tag(key); !tag.empty())
      event.add_scalar(tag, value.get<double>());
  }
  last_step_ = std::max(last_step_, step);
  append(event);
}

void TensorboardSink::write_text(const std::string& tag, const std::string& text, int64_t step) {
  TensorboardEvent event(seconds_since_1970(), step);
  event.add_text(tag, text);
  append(event);
}

}  // namespace trainer
