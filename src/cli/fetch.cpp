// trainer fetch NAME[@REVISION] [--dataset]
#include "hub/fetch.h"

#include <iostream>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "cli/commands.h"

namespace trainer::cli {
namespace {

struct FetchWords {
  std::string name, token_file;
  bool dataset = false;
};

// The folder of the snapshot, or the file that is named.
std::filesystem::path fetch(const FetchWords& words) {
  const hub::Kind kind = words.dataset ? hub::Kind::dataset : hub::Kind::model;
  const auto name = hub::parse_name(kind, words.name);
  if (!name) {
    const bool is_path = !words.dataset && hub::parse_name(hub::Kind::dataset, words.name);
    throw ConfigError(concat("fetch: '", words.name,
                             "' is no name on the Hugging Face Hub; expected OWNER/NAME or ",
                             "OWNER/NAME@REVISION, such as google/flan-t5-base",
                             is_path ? "; for a file of a data set, give --dataset" : ""));
  }
  hub::FetchOptions options;
  options.refresh = true;
  if (!words.token_file.empty()) options.token_file = words.token_file;
  if (kind == hub::Kind::model) return hub::fetch_model(*name, hub::ModelParts::all, options);
  const auto files = hub::fetch_data(*name, hub::Split::any, options);
  if (files.size() == 1 && !name->path.empty()) return files.front();
  return hub::cached_snapshot(*name);
}

}  // namespace

void add_fetch(CLI::App& command) {
  auto words = std::make_shared<FetchWords>();
  command
      .add_option("name", words->name,
                  "google/flan-t5-base, or with a branch, tag or commit: google/flan-t5-base@main; of data "
                  "sets also a "
                  "file: tatsu-lab/alpaca/data/train.parquet")
      ->type_name("NAME[@REVISION]");
  command.add_flag("--dataset", words->dataset, "The name is that of a data set");
  command
      .add_option("--token-file", words->token_file,
                  "File that holds the token of your account (default: HF_TOKEN, then HF_HOME/token)")
      ->type_name("FILE");
  command.footer(
      "Downloads go into the cache that other programs use, too (HF_HOME, HF_HUB_CACHE). An interrupted\n"
      "download is resumed by the same command. docs/model-names.md has the rules.");
  command.callback([words] {
    require_option(words->name, "fetch", "NAME");
    std::cout << fetch(*words).string() << "\n";
  });
}

}  // namespace trainer::cli
