// A configuration of another program. What is accepted has a result that load_config() accepts; and a key
// more, in any of its mappings, is named or passed on.
#include <cstdlib>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/yaml_text.h"
#include "config/import_config.h"
#include "fuzz/fuzz.h"

namespace {

using namespace trainer;

constexpr const char* kNew = "zz_new";

// Returns how many mappings there are. Adds the key to the one with this number, from 0.
size_t add_key(YAML::Node at, size_t number, size_t& next) {
  if (at.IsMap() && next++ == number) {
    at[kNew] = 7;
    return next;
  }
  if (!at.IsMap() && !at.IsSequence()) return next;
  for (auto entry : at) add_key(at.IsMap() ? entry.second : YAML::Node(entry), number, next);
  return next;
}

std::string all_of(const ImportedConfig& imported) {
  return concat(imported.yaml, "\n", join(imported.changes, "\n"), "\n", join(imported.left_out, "\n"));
}

void require_named(const std::string& text, size_t number) {
  const ImportedConfig imported = import_config(fuzz::put("theirs.yaml", text));
  if (all_of(imported).find(kNew) != std::string::npos) return;
  fuzz::require_none(concat("a key that is not named, in mapping ", number), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::accept_errors(text, [&] {
    const ImportedConfig imported = import_config(fuzz::put("theirs.yaml", text));
    fuzz::require_own_words(text, all_of(imported));
    try {
      load_config(fuzz::put("ours.yaml", imported.yaml), {});
    } catch (const Error& error) {
      fuzz::require_none("a result that is refused", error.what());
    }
    if (text.find('&') != std::string::npos) return;  // one mapping in several places
    size_t mappings = 0;
    add_key(parse_yaml(text), size + 1'000'000, mappings);
    const size_t number = mappings == 0 ? 0 : size % mappings;
    YAML::Node document = parse_yaml(text);
    size_t next = 0;
    add_key(document, number, next);
    fuzz::accept_errors(text, [&] { require_named(YAML::Dump(document), number); });
  });
  return 0;
}
