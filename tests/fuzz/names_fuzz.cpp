// Names as paths: what a hub, a cache, an index or an adapter names stays in its folder, and the errors are
// in the program's own words. The first byte says which door the rest comes through.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "fuzz/fuzz.h"
#include "hub/cache.h"
#include "hub/choose_files.h"
#include "hub/listing.h"
#include "net/address.h"

namespace {

namespace fs = std::filesystem;
using namespace trainer;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_inside(const CheckedName& name) {
  const std::string folder = "/folder/";
  const std::string path = (fs::path(folder) / name).lexically_normal().string();
  require(!name.empty() && path == folder + name.text());
}

void check(const hub::Listing& listing) {
  check_inside(listing.commit);
  for (const hub::RemoteFile& file : listing.files) {
    check_inside(file.path);
    for (const CheckedName& hash : {file.blob_id, file.sha256})
      require(hash.empty() || CheckedName::hash(hash.text()).has_value());
    require(file.size >= -1);
  }
  const std::string tree = hub::tree_text(listing);
  if (!tree.empty()) require(hub::read_tree(tree, listing.commit).files.size() == listing.files.size());
}

const CheckedName& any_commit() {
  static const CheckedName commit = CheckedName::commit(std::string(40, 'a')).value();
  return commit;
}

// A cache so deep that a name which leads out of it still ends in the scratch folder.
fs::path cache() { return fuzz::scratch() / "a" / "b" / "c" / "cache"; }

constexpr const char* kAdapter = "adapter";

void write_into_cache(const std::string& text) {
  const size_t cut = std::min(text.find('\n'), text.size());
  const hub::CachedRepository repository(cache(), {hub::Kind::model, "org/name", text.substr(0, cut), ""});
  repository.keep_commit(any_commit());
  if (const auto path = CheckedName::path(std::string_view(text).substr(std::min(cut + 1, text.size())))) {
    repository.link(any_commit(), *path, any_commit());
    repository.has(any_commit(), *path);
  }
  fs::path folder = fuzz::scratch();
  for (const char* below : {"a", "b", "c", "cache"}) {
    for (const auto& entry : fs::directory_iterator(folder))
      require(entry.path().filename() == below || entry.path().filename() == kAdapter);
    folder /= below;
  }
  fs::remove_all(cache());
}

void read_adapter(std::string_view text) {
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_HUB_CACHE", cache().c_str(), 1);
  const fs::path adapter = fuzz::scratch() / kAdapter;
  fs::create_directories(adapter);
  fuzz::put(fs::path(kAdapter) / "adapter_config.json", text);
  base_directory(adapter);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(fuzz::text_of(data + 1, size - 1));
  fuzz::accept_errors(text, [&] {
    switch (data[0] % 6) {
      case 0:
        return check(hub::read_listing(text));
      case 1:
        return check(hub::read_tree(text, any_commit()));
      case 2:
        for (const CheckedName& file : hub::files_in_index(text)) check_inside(file);
        return;
      case 3:
        return write_into_cache(text);
      case 4:
        return read_adapter(text);
      default:
        for (const auto& name : {CheckedName::path(text), CheckedName::file(text), CheckedName::hash(text)})
          if (name) check_inside(*name);
        require(net::without_credentials(text).size() <= text.size() + 3 * text.size());
        if (net::is_this_machine(text)) require(net::keeps_secrets(text));
    }
  });
  return 0;
}
