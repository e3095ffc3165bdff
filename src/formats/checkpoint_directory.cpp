// Finds, verifies and removes the checkpoints of an output directory.
#include <algorithm>
#include <charconv>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"

#include "base/checksum.h"
#include "base/file_facts.h"
#include "base/text.h"
#include "formats/checkpoint_manifest.h"
#include "formats/foreign_checkpoint.h"
#include "formats/optimizer_state.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kCheckpointPrefix = "checkpoint-";

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::exists(directory, error)) return names;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  if (error) throw FormatError(concat(directory.string(), ": cannot be read: ", error.message()));
  return names;
}

// Returns the steps of everything that is named checkpoint-STEP, in ascending order.
std::vector<int64_t> steps_of_names(const fs::path& output_dir) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(output_dir)) {
    if (const auto step = checkpoint_step(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void require_directory(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const fs::file_status status = fs::symlink_status(path, error);
  throw of_family(
      ErrorCode::checkpoint,
      FormatError(concat(path.string(), fs::is_symlink(status) ? ": is a link, but not to a directory"
                                        : fs::exists(status)   ? ": is a file, not a directory"
                                                               : ": there is no such directory")));
}

void refuse_foreign_checkpoint(const fs::path& path) {
  std::error_code ignored;
  const std::string program = foreign_program(path);
  const bool is_model =
      program.empty() && !fs::exists(path / kManifestFile, ignored) &&
      !fs::exists(path / kOptimizerFile, ignored) &&
      (fs::exists(path / "config.json", ignored) || fs::exists(path / "adapter_config.json", ignored));
  if (program.empty() && !is_model) return;
  throw of_family(ErrorCode::checkpoint,
                  FormatError(concat(path.string(),
                                     program.empty() ? ": is a model, not a checkpoint of a run"
                                                     : ": is a checkpoint of another program, ",
                                     program, "; no run can resume from it: ", how_to_start_from(path))));
}

// Returns how a file differs from its entry in the manifest, or "". Reads the file only if its size is right.
std::string damage_of(const fs::path& path, const ManifestEntry& expected) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return concat(path.string(), ": is missing");
  if (!fs::is_regular_file(status)) return concat(path.string(), ": is not a regular file");
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (bytes != expected.bytes) {
    return concat(path.string(), ": has ", grouped(bytes), " bytes where ", kManifestFile, " says ",
                  grouped(expected.bytes));
  }
  try {
    if (file_checksum(path) != expected.checksum)
      return concat(path.string(), ": its bytes do not match the checksum in ", kManifestFile);
  } catch (const FormatError& e) {
    return e.what();
  }
  return "";
}

std::vector<std::string> damages(const fs::path& directory,
                                 const std::map<CheckedName, ManifestEntry>& files) {
  std::vector<std::string> damaged;
  for (const auto& [name, entry] : files) {
    if (const std::string damage = damage_of(directory / name, entry); !damage.empty())
      damaged.push_back(damage);
  }
  return damaged;
}

std::optional<std::string> lacking(const Checkpoint& checkpoint, const std::vector<std::string>& needed) {
  for (const std::string& name : needed) {
    if (!checkpoint.files.contains(name)) return concat(checkpoint.path.string(), ": has no ", name);
  }
  return std::nullopt;
}

bool is_whole(const fs::path& checkpoint) {
  try {
    read_checkpoint(checkpoint);
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

// Returns whether one of the checkpoints is complete. Tries the newest first.
bool has_whole(const fs::path& output_dir, const std::vector<int64_t>& rising_steps) {
  return std::any_of(rising_steps.rbegin(), rising_steps.rend(),
                     [&](int64_t step) { return is_whole(checkpoint_path(output_dir, step)); });
}

}  // namespace

std::optional<int64_t> checkpoint_step(const std::string& name, const std::string& ending) {
  const std::string prefix = kCheckpointPrefix;
  int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  const bool is_its_name = step >= 0 && name == concat(kCheckpointPrefix, step, ending);
  return is_its_name ? std::optional(step) : std::nullopt;
}

int64_t Checkpoint::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : files) sum += bytes;
  return sum;
}

fs::path checkpoint_path(const fs::path& output_dir, int64_t step) {
  return output_dir / concat(kCheckpointPrefix, step);
}

std::vector<int64_t> checkpoint_steps(const fs::path& output_dir) {
  std::vector<int64_t> steps = steps_of_names(output_dir);
  std::erase_if(steps, [&](int64_t step) {
    std::error_code error;
    return !fs::is_directory(checkpoint_path(output_dir, step), error);
  });
  return steps;
}

Checkpoint read_checkpoint(const fs::path& path) {
  require_directory(path);
  refuse_foreign_checkpoint(path);
  const Manifest manifest = read_manifest(path);
  const std::vector<std::string> damaged = damages(path, manifest.files);
  if (!damaged.empty()) throw of_family(ErrorCode::checkpoint, FormatError(join_some(damaged, 10, "; ")));
  Checkpoint checkpoint{path, manifest.step, {}};
  for (const auto& [name, entry] : manifest.files) checkpoint.files[name.text()] = entry.bytes;
  return checkpoint;
}

void verify_model_files(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory / kManifestFile, error)) return;
  Manifest manifest = read_manifest(directory);
  std::erase_if(manifest.files, [](const auto& file) { return file.first == kOptimizerFile; });
  const std::vector<std::string> damaged = damages(directory, manifest.files);
  if (damaged.empty()) return;
  throw of_family(
      ErrorCode::checkpoint,
      FormatError(concat(join_some(damaged, 10, "; "),
                         "; use another checkpoint or an undamaged copy. Files that were changed on "
                         "purpose are used when ",
                         kManifestFile, " is removed")));
}

std::optional<Checkpoint> newest_complete_checkpoint(const fs::path& output_dir,
                                                     const std::vector<std::string>& needed,
                                                     const std::function<void(const std::string&)>& skipped) {
  std::vector<int64_t> steps = steps_of_names(output_dir);
  std::reverse(steps.begin(), steps.end());
  for (int64_t step : steps) {
    std::string reason;
    try {
      Checkpoint checkpoint = read_checkpoint(checkpoint_path(output_dir, step));
      if (const auto lack = lacking(checkpoint, needed)) {
        reason = *lack;
      } else if (checkpoint.step != step) {
        reason = concat(checkpoint.path.string(), ": is a checkpoint of step ", checkpoint.step);
      } else {
        return checkpoint;
      }
    } catch (const FormatError& e) {
      reason = e.what();
    }
    skipped(concat("checkpoint-", step, " is skipped: ", reason));
  }
  return std::nullopt;
}

void remove_checkpoint(const fs::path& path) {
  const fs::path nameless = with_ending(path, kRemoving);
  delete_entry(nameless);
  move_entry(path, nameless);
  delete_entry(nameless);
}

bool limit_checkpoints(const fs::path& output_dir, int64_t total_limit, const KnownCheckpoints& known) {
  std::vector<int64_t> kept = checkpoint_steps(output_dir), others;
  if (total_limit <= 0 || static_cast<int64_t>(kept.size()) <= total_limit) return false;
  // The best goes last, after the newest of the others; the last `total_limit` are kept.
  std::stable_partition(kept.begin(), kept.end(), [&](int64_t step) { return step != known.best_step; });
  const int64_t newest = *std::max_element(kept.begin(), kept.end());
  if (kept.back() != newest) total_limit = std::max(total_limit, int64_t{2});
  const auto end = kept.end() - std::min(total_limit, static_cast<int64_t>(kept.size()));
  others.assign(kept.begin(), end);
  kept.erase(kept.begin(), end);
  std::sort(kept.begin(), kept.end());
  // Keeps, beyond the limit, the newest of the others for which is_so(step) holds.
  const auto keep = [&](const auto& is_so) {
    const auto found = std::find_if(others.rbegin(), others.rend(), is_so);
    if (found == others.rend()) return false;
    kept.push_back(*found);
    others.erase(std::next(found).base());
    return true;
  };
  const auto is_good = [&](int64_t step) { return known.good_step && step <= *known.good_step; };
  const bool is_known =
      known.whole_step && std::find(kept.begin(), kept.end(), *known.whole_step) != kept.end();
  const bool keeps_good = known.good_step && std::none_of(kept.begin(), kept.end(), is_good) && keep(is_good);
  if (!is_known && !has_whole(output_dir, kept))
    keep([&](int64_t step) { return is_whole(checkpoint_path(output_dir, step)); });
  for (int64_t step : others) remove_checkpoint(checkpoint_path(output_dir, step));
  return keeps_good;
}

void remove_checkpoint_litter(const fs::path& output_dir) {
  for (const std::string& name : names_in(output_dir)) {
    const auto replaced = checkpoint_step(name, kReplacing);
    if (!replaced && !checkpoint_step(name, kFilling) && !checkpoint_step(name, kRemoving)) continue;
    std::error_code ignored;
    try {
      const bool is_lost = replaced && !fs::exists(checkpoint_path(output_dir, *replaced), ignored);
      if (is_lost) {
        move_entry(output_dir / name, checkpoint_path(output_dir, *replaced));
      } else {
        delete_entry(output_dir / name);
      }
    } catch (const FormatError& e) {
      log::warning(e.what());
    }
  }
}

std::string lack_of_space(const fs::path& output_dir, int64_t bytes) {
  const int64_t free = free_space(output_dir);
  if (free >= bytes) return "";
  return concat(output_dir.string(), ": ", bytes_string(free), " are free, but the next checkpoint needs ",
                bytes_string(bytes), "; free some space, or lower save.total_limit");
}

}  // namespace trainer
