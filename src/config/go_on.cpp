#include "config/go_on.h"

#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/strings.h"

#include "base/shell_word.h"
#include "config/value.h"
#include "config/webhook.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

bool is_same_place(const fs::path& one, const fs::path& other) {
  std::error_code ignored;
  return fs::weakly_canonical(one, ignored) == fs::weakly_canonical(other, ignored);
}

// Whoever asks for the status of a run may stand in a half set up environment.
RankPlace place_or_alone() {
  try {
    return rank_place();
  } catch (const Error&) {
    return {};
  }
}

// What the file of the run says, and must not hold for the next start.
std::vector<std::string> changes_to_go_on(const Config& config, const fs::path& directory) {
  std::vector<std::string> changes;
  if (config.overwrite_output_dir) changes.emplace_back("overwrite_output_dir=false");
  if (config.resume != "auto") changes.emplace_back("resume=auto");
  if (!is_same_place(config.output_dir, directory))
    changes.push_back(concat("output_dir=", directory.string()));
  // No file holds the address, which is a secret.
  if (shown_webhook(config.notify.webhook) != config.notify.webhook)
    changes.emplace_back("notify.webhook=ADDRESS");
  return changes;
}

}  // namespace

std::string go_on_command(const Config& config, const fs::path& directory) {
  const RankPlace place = place_or_alone();
  std::vector<std::string> words{"trainer", "--config", shell_word((directory / "config.yaml").string())};
  if (place.launcher == "trainer" && place.count > 1) {
    words.insert(words.end(), {config.device == "cpu" ? "--ranks" : "--gpus", std::to_string(place.count)});
  } else if (place.count > 1) {
    return concat("the same command of ", place.launcher);
  }
  for (const std::string& change : changes_to_go_on(config, directory)) words.push_back(shell_word(change));
  return join(words, " ");
}

std::string longer_run_command(const Config& config, const fs::path& directory) {
  const TrainingConfig& training = config.training;
  const std::string more =
      training.max_steps > 0
          ? concat("max_steps=", 2 * training.max_steps)
          : concat("num_train_epochs=", config::number_as_yaml(2 * training.num_train_epochs));
  return concat(go_on_command(config, directory), " ", more);
}

}  // namespace trainer
