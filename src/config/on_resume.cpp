#include "config/on_resume.h"

#include <functional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "config/schema.h"

namespace trainer {
namespace {

std::vector<std::string> keys_where(const std::function<bool(const config::Key&)>& holds) {
  std::vector<std::string> names;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) {
      if (holds(key)) names.push_back(key.full_name());
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> keys_marked(OnResume mark) {
  return keys_where([mark](const config::Key& key) { return key.on_resume == mark; });
}

std::vector<std::string> keys_of_section(const std::string& section) {
  return keys_where([&](const config::Key& key) { return key.section == section; });
}

OnResume on_resume(const std::string& name) {
  const config::Key* key = config::find_key(name);
  if (key == nullptr) throw ConfigError(concat(name, " is no key"));
  return key->on_resume;
}

}  // namespace trainer
