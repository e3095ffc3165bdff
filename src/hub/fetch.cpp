#include "hub/fetch.h"

#include <algorithm>
#include <fstream>
#include <pwd.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "hub/cache.h"
#include "hub/choose_files.h"
#include "hub/download_files.h"
#include "hub/server.h"
#include "hub/settings.h"

namespace trainer::hub {
namespace fs = std::filesystem;
namespace {

std::string text_of(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return "";
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// "belongs to alice": of the cache, or of the folder in which it would be made.
std::string owner_of(fs::path folder) {
  struct stat info {};
  while (::stat(folder.c_str(), &info) != 0 && folder.has_relative_path()) folder = folder.parent_path();
  if (info.st_uid == ::geteuid()) return "";
  const passwd* user = ::getpwuid(info.st_uid);
  return concat(folder.string(), " belongs to ",
                user == nullptr ? concat("user ", info.st_uid) : user->pw_name, "; ");
}

// All that is known here of what a name stands for, and how to come by more.
class Fetch {
 public:
  Fetch(const Name& name, const FetchOptions& options)
      : name_(name),
        options_(options),
        settings_(read_settings(options.token_file)),
        repository_(settings_.cache, name),
        commit_(repository_.commit()) {}

  const CachedRepository& repository() const { return repository_; }
  const CheckedName& commit() const { return commit_; }
  const Name& name() const { return name_; }
  std::string server() const { return net::origin_of(settings_.endpoint); }
  // The content of a file of the snapshot; "" if it is not there.
  std::string content_of(const char* file) const { return text_of(repository_.snapshot(commit_) / file); }

  bool is_cached(const std::vector<RemoteFile>& files) const {
    return std::ranges::all_of(files,
                               [&](const RemoteFile& file) { return repository_.has(commit_, file.path); });
  }
  std::optional<Listing> kept_listing() const {
    return commit_.empty() ? std::nullopt : repository_.listing(commit_);
  }
  bool may_ask() const { return !settings_.is_offline && !options_.from_cache_only; }
  bool takes_cached() const { return !options_.refresh || is_commit(name_.revision) || !may_ask(); }

  // Lists the files, at the commit that the cache has unless it is to be refreshed.
  Listing list() {
    if (!may_ask()) refuse_to_ask();
    if (auto kept = kept_listing(); kept && takes_cached()) return *kept;
    Name asked = name_;
    if (takes_cached() && !commit_.empty()) asked.revision = commit_.text();
    try {
      Listing listing = Server(settings_, asked).list();
      commit_ = listing.commit;
      return listing;
    } catch (const net::NetworkError& error) {
      throw HubError(concat(name_.text(), " is not", commit_.empty() ? "" : " completely", " in ",
                            settings_.cache.string(), " and cannot be downloaded: ", error.what()));
    }
  }

  void download(const Listing& listing, const std::vector<RemoteFile>& files) {
    try {
      repository_.prepare();
      if (kept_ != listing.commit) repository_.keep_listing(listing);
      kept_ = listing.commit;
      repository_.keep_commit(listing.commit);
    } catch (const FormatError& error) {
      throw HubError(concat(error.what(), "; ", owner_of(settings_.cache),
                            "let HF_HUB_CACHE name a folder that you may write to"));
    }
    std::vector<RemoteFile> missing;
    std::ranges::copy_if(files, std::back_inserter(missing),
                         [&](const RemoteFile& file) { return !repository_.has(listing.commit, file.path); });
    if (!missing.empty()) download_files(settings_, name_, repository_, listing.commit, missing);
  }

  [[noreturn]] void refuse_to_ask() const {
    std::string near = nearest_id(name_.id, cached_ids(settings_.cache, name_.kind));
    near = near.empty() || near == name_.id ? "" : concat("; did you mean ", near, ", which is there?");
    throw HubError(concat(name_.text(), " is not", commit_.empty() ? "" : " completely", " in ",
                          settings_.cache.string(),
                          settings_.is_offline ? ", and HF_HUB_OFFLINE forbids to download it" : "", near));
  }

  // Returns whether the cached files will do, as the hub cannot be reached.
  bool falls_back(const Error& error) const {
    if (!options_.refresh || dynamic_cast<const HubError*>(&error) == nullptr) return false;
    log::warning(concat(error.what(), "; taking what the cache has"));
    return true;
  }

 private:
  const Name name_;
  const FetchOptions options_;
  const Settings settings_;
  const CachedRepository repository_;
  CheckedName commit_, kept_;  // kept_: whose list this has written
};

bool is_cached_model(const Fetch& fetch, ModelParts parts) {
  if (fetch.commit().empty()) return false;
  const std::string index = fetch.content_of(kIndex);
  if (const auto listing = fetch.kept_listing()) {
    if (parts == ModelParts::all && has_only_pickles(*listing)) return false;
    try {
      const ChosenFiles chosen = choose_model_files(*listing, parts, index);
      const bool whole = parts != ModelParts::all || (chosen.missing.empty() && have_weights(chosen.files));
      return whole && !chosen.files.empty() && fetch.is_cached(chosen.files);
    } catch (const FormatError& error) {
      log::debug(concat(kIndex, ": ", error.what()));
      return false;
    }
  }
  const auto has = [&](const std::string& file) {
    const auto path = CheckedName::path(file);
    return path && fetch.repository().has(fetch.commit(), *path);
  };
  return is_complete_model(has, index, parts);
}

// The class that config.json names; AutoModel would drop the output head.
std::string class_of(const fs::path& folder) {
  const auto config =
      nlohmann::json::parse(text_of(folder / "config.json"), nullptr, /*allow_exceptions=*/false);
  const auto names = config.is_object() ? config.value("architectures", nlohmann::json()) : nlohmann::json();
  const std::string name = names.is_array() && !names.empty() && names[0].is_string() ? names[0] : "";
  const bool plain =
      !name.empty() && std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0; });
  return plain ? name : "AutoModelForCausalLM";
}

void refuse_pickles(const Fetch& fetch) {
  const std::string& id = fetch.name().id;
  const std::string copy = id.substr(id.find('/') + 1);
  throw HubError(concat(
      "the model ", id, " has its weights only as pickled files (.bin), which can run any code and are ",
      "not read; convert them into a folder, and give that:\n  python3 -c \"import transformers as t; t.",
      class_of(fetch.repository().snapshot(fetch.commit())), ".from_pretrained('", id,
      "', torch_dtype='auto').save_pretrained('", copy, "'); t.AutoTokenizer.from_pretrained('", id,
      "').save_pretrained('", copy, "')\""));
}

bool has_file(const std::vector<RemoteFile>& files, const char* ending) {
  return std::ranges::any_of(files,
                             [&](const RemoteFile& file) { return file.path.text().ends_with(ending); });
}

void check_model_files(const Fetch& fetch, const Listing& listing, const std::vector<RemoteFile>& files) {
  if (has_file(files, "config.json")) return;
  const bool gguf = has_file(listing.files, ".gguf");
  throw HubError(concat(
      "the model ", fetch.name().text(), " has no config.json",
      gguf ? "; it holds GGUF files, which cannot be trained: give the model that they were made of" : ""));
}

[[noreturn]] void refuse_without_weights(const Fetch& fetch, const Listing& listing) {
  std::vector<std::string> others;
  for (const RemoteFile& file : listing.files) {
    const std::string& path = file.path.text();
    if (path.ends_with(".safetensors") || path.ends_with(".gguf")) others.push_back(path);
  }
  throw HubError(concat("the model ", fetch.name().text(), " has no weights at ", fetch.server(),
                        " that are read: neither model.safetensors, nor ", kIndex,
                        " with the files that it names, nor adapter_model.safetensors",
                        others.empty() ? "" : concat("; it has ", join_some(others)),
                        "; give another model, or another revision of it"));
}

// The files of a model with exactly those weights that its index names.
std::vector<RemoteFile> files_with_weights(Fetch& fetch, const Listing& listing) {
  ChosenFiles chosen = choose_model_files(listing, ModelParts::all, "");
  const auto index =
      std::ranges::find_if(chosen.files, [](const RemoteFile& file) { return file.path == kIndex; });
  if (index != chosen.files.end()) {
    fetch.download(listing, {*index});
    try {
      chosen = choose_model_files(listing, ModelParts::all, fetch.content_of(kIndex));
    } catch (const FormatError& error) {
      throw HubError(concat("the model ", fetch.name().text(), ": ", kIndex, ": ", error.what(),
                            "; give another model, or another revision of it"));
    }
  }
  if (!chosen.missing.empty())
    throw HubError(concat("the model ", fetch.name().text(), " is not complete at ", fetch.server(),
                          ": of the ", "files that ", kIndex, " names, ", chosen.missing.size(),
                          " are missing: ", join_some(chosen.missing),
                          "; give another revision of it, or ask its owner"));
  if (!have_weights(chosen.files)) refuse_without_weights(fetch, listing);
  return chosen.files;
}

// Returns the files of a data set that another program has downloaded.
Listing listing_of_folder(const CheckedName& commit, const fs::path& folder) {
  Listing listing;
  listing.commit = commit;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    const auto path = CheckedName::path(at->path().lexically_relative(folder).string());
    if (path) listing.files.emplace_back().path = *path;
  }
  std::ranges::sort(listing.files, {}, &RemoteFile::path);
  return listing;
}

std::vector<fs::path> paths_of(const Fetch& fetch, const std::vector<RemoteFile>& files) {
  std::vector<fs::path> paths;
  for (const RemoteFile& file : files)
    paths.push_back(fetch.repository().snapshot(fetch.commit()) / file.path);
  std::ranges::sort(paths);
  return paths;
}

const CheckedName kCard = CheckedName::file("README.md").value();

std::vector<RemoteFile> card_of(const Listing& listing) {
  std::vector<RemoteFile> card;
  std::ranges::copy_if(listing.files, std::back_inserter(card),
                       [](const RemoteFile& file) { return file.path == kCard; });
  return card;
}

// Returns whether README.md says which files are meant, and is not here yet.
bool needs_card(const Fetch& fetch, const Listing& listing) {
  return depends_on_subsets(fetch.name(), listing) && !fetch.repository().has(fetch.commit(), kCard) &&
         !card_of(listing).empty();
}

std::vector<RemoteFile> choose_data(const Fetch& fetch, const Listing& listing, Split split) {
  std::vector<Subset> subsets;
  if (depends_on_subsets(fetch.name(), listing)) {
    const fs::path card = fetch.repository().snapshot(fetch.commit()) / kCard;
    try {
      subsets = read_subsets(text_of(card));
    } catch (const DataError& error) {
      log::warning(concat(card.string(), ": ", error.what(), "; the names of the files count"));
    }
  }
  return in_family(ErrorCode::hub, [&] { return choose_data_files(fetch.name(), listing, split, subsets); });
}

// Returns the cached files of the data set, if they are all that is meant.
std::optional<std::vector<fs::path>> cached_data(const Fetch& fetch, Split split) {
  if (fetch.commit().empty()) return std::nullopt;
  auto listing = fetch.kept_listing();
  const auto path = CheckedName::path(fetch.name().path);
  const bool exact = path && fetch.repository().has(fetch.commit(), *path);
  if (!listing && (exact || !fetch.may_ask()))
    listing = listing_of_folder(fetch.commit(), fetch.repository().snapshot(fetch.commit()));
  if (!listing) return std::nullopt;
  if (fetch.may_ask() && needs_card(fetch, *listing)) return std::nullopt;
  const std::vector<RemoteFile> files = choose_data(fetch, *listing, split);
  if (!fetch.is_cached(files)) return std::nullopt;
  return paths_of(fetch, files);
}

}  // namespace

fs::path fetch_model(const Name& name, ModelParts parts, const FetchOptions& options) {
  Fetch fetch(name, options);
  const bool cached = is_cached_model(fetch, parts);
  const CheckedName commit = fetch.commit();
  if (cached && fetch.takes_cached()) return fetch.repository().snapshot(commit);
  try {
    const Listing listing = fetch.list();
    const bool pickles = parts == ModelParts::all && has_only_pickles(listing);
    std::vector<RemoteFile> files =
        choose_model_files(listing, pickles ? ModelParts::config : parts, "").files;
    check_model_files(fetch, listing, files);
    if (parts == ModelParts::all && !pickles) files = files_with_weights(fetch, listing);
    fetch.download(listing, files);
    if (pickles) refuse_pickles(fetch);
    return fetch.repository().snapshot(fetch.commit());
  } catch (const HubError& error) {
    if (!cached || !fetch.falls_back(error)) throw;
    return fetch.repository().snapshot(commit);
  }
}

std::vector<fs::path> fetch_data(const Name& name, Split split, const FetchOptions& options) {
  Fetch fetch(name, options);
  const auto cached = cached_data(fetch, split);
  if (cached && fetch.takes_cached()) return *cached;
  try {
    const Listing listing = fetch.list();
    if (needs_card(fetch, listing)) fetch.download(listing, card_of(listing));
    const std::vector<RemoteFile> files = choose_data(fetch, listing, split);
    fetch.download(listing, files);
    return paths_of(fetch, files);
  } catch (const HubError& error) {
    if (!cached || !fetch.falls_back(error)) throw;
    return *cached;
  }
}

fs::path cached_snapshot(const Name& name) {
  const CachedRepository repository(cache_folder(), name);
  const CheckedName commit = repository.commit();
  std::error_code ignored;
  return !commit.empty() && fs::is_directory(repository.snapshot(commit), ignored)
             ? repository.snapshot(commit)
             : fs::path();
}

fs::path resolve_model(const std::string& path_or_name, ModelParts parts) {
  const auto name = find_name(Kind::model, path_or_name);
  return name ? fetch_model(*name, parts) : fs::path(path_or_name);
}

}  // namespace trainer::hub
