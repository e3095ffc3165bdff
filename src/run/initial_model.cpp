#include "run/initial_model.h"

#include <filesystem>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/text/tokenizer.h"

#include "base/checksum.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "models/random_weights.h"

namespace trainer {
namespace fs = std::filesystem;

Config with_initial_weights(Config config) {
  if (config.model.init != ModelInit::random) return config;
  const fs::path from = config.model.path;
  if (!has_tokenizer(from))
    throw FormatError(concat(from.string(), ": model.init: random needs the files of a tokenizer beside ",
                             "config.json; copy those of a model with the same vocabulary there"));
  const std::string made_of = concat(read_file(from / "config.json"), "\n",
                                     load_tokenizer(from)->fingerprint(), "\nseed ", config.seed);
  const fs::path to = cache_folder(config.data.cache) / "initial" / checksum(made_of);
  config.model.path = to.string();
  if (fs::exists(to / "config.json")) return config;
  const Progress shown("writing random weights");
  const fs::path unfinished = concat(to.string(), kUnfinished, "-", getpid());
  fs::create_directories(unfinished);
  try {
    write_random_model(from, unfinished, static_cast<uint64_t>(config.seed));
    std::error_code taken;  // by another process, which has written the same
    fs::rename(unfinished, to, taken);
    if (taken && !fs::exists(to / "config.json"))
      throw FormatError(concat(to.string(), ": cannot be written: ", taken.message()));
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
  std::error_code ignored;
  fs::remove_all(unfinished, ignored);
  log::info(concat("random weights: ", to.string(), " (model.init: random, seed ", config.seed, ")"));
  return config;
}

}  // namespace trainer
