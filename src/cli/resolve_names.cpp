#include "cli/resolve_names.h"

#include <filesystem>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/keys.h"
#include "hub/name.h"

namespace trainer::cli {
namespace {

using hub::Kind;
using Commits = std::map<std::pair<Kind, std::string>, std::string>;

void add_commit(Kind kind, const std::string& text, Commits& commits) {
  const auto name = hub::parse_name(kind, text);
  if (name && hub::is_commit(name->revision)) commits.emplace(std::pair(kind, name->id), name->revision);
}

// The commits in the configuration that the run in output_dir has kept.
Commits commits_of_run(const Config& config) {
  const std::filesystem::path file = std::filesystem::path(config.output_dir) / "config.yaml";
  std::error_code ignored;
  if (config.overwrite_output_dir || config.resume == "never" || !std::filesystem::exists(file, ignored))
    return {};
  Commits commits;
  try {
    const Config kept = load_config(file, {});
    add_commit(Kind::model, kept.model.path, commits);
    if (kept.lora) add_commit(Kind::model, kept.lora->adapter, commits);
    add_commit(Kind::model, kept.objective.teacher, commits);
    for (const DataSource& source : kept.data.train) add_commit(Kind::dataset, source.path, commits);
    for (const DataSource& source : kept.data.eval.sources) add_commit(Kind::dataset, source.path, commits);
  } catch (const Error& error) {  // from another version of the program; differences are found later
    log::debug(concat(file.string(), ": ", first_line(error.what())));
  }
  return commits;
}

class Resolver {
 public:
  Resolver(Config& config, const Names& names)
      : config_(config), names_(names), commits_(names.goes_on ? commits_of_run(config) : Commits()) {
    options_.from_cache_only = !names.downloads;
  }

  void model(const std::string& key, std::string& path, hub::ModelParts parts) {
    auto name = hub::find_name(Kind::model, path);
    if (!name) return;
    const std::string given = path;
    guarded(key, ExitCode::files, [&] {
      pin(*name);
      path = hub::fetch_model(*name, parts, options_).string();
      log::info(concat(key, ": ", given, " is ", hub::shown(path), ", in ", path));
    });
  }

  void data(const std::string& key, std::vector<DataSource>& sources, hub::Split split) {
    std::vector<DataSource> resolved;
    for (const DataSource& source : sources) {
      auto name = hub::find_name(Kind::dataset, source.path);
      if (!name) {
        resolved.push_back(source);
        continue;
      }
      std::vector<DataSource> found;
      guarded(key, ExitCode::data, [&] {
        pin(*name);
        const auto files = hub::fetch_data(*name, split, options_);
        for (const auto& file : files) found.emplace_back(file.string(), source.weight, source.loss_weight);
        log::info(concat(key, ": ", source.path, " is ", files.size(), files.size() == 1 ? " file" : " files",
                         ", from ", hub::shown(files.front().string())));
      });
      if (found.empty()) found.push_back(source);
      resolved.insert(resolved.end(), found.begin(), found.end());
    }
    sources = std::move(resolved);
  }

 private:
  // The same files as before, whatever the hub has by now.
  void pin(hub::Name& name) const {
    const auto commit = commits_.find({name.kind, name.id});
    if (commit != commits_.end() && name.revision.empty()) name.revision = commit->second;
  }

  void guarded(const std::string& key, ExitCode code, const std::function<void()>& resolve) const {
    try {
      resolve();
    } catch (const Error& error) {
      if (!names_.downloads) return;
      const auto origin = config_.origins.find(key);
      throw of_family(ErrorCode::hub,
                      ConfigError(concat(origin == config_.origins.end() ? "" : origin->second + ": ", key,
                                         ": ", error.what()),
                                  code));
    }
  }

  Config& config_;
  const Names& names_;
  const Commits commits_;
  hub::FetchOptions options_;
};

}  // namespace

void resolve_names(Config& config, const Names& names) {
  Resolver resolver(config, names);
  // The data first: a mistake in their name is found before gigabytes of weights are downloaded.
  if (names.train) resolver.data("data.train", config.data.train, hub::Split::train);
  if (names.eval) resolver.data("data.eval", config.data.eval.sources, hub::Split::eval);
  if (config.lora && names.adapter)
    resolver.model("lora.adapter", config.lora->adapter, hub::ModelParts::all);
  if (names.adapter) resolver.model("objective.teacher", config.objective.teacher, hub::ModelParts::all);
  resolver.model("model.path", config.model.path, names.model);
  config::set_dependent_defaults(config);  // some follow from the model, which is here only now
}

std::string resolve_model_name(const std::string& text, hub::ModelParts parts) {
  return hub::resolve_model(text, parts).string();
}

}  // namespace trainer::cli
