#include <sstream>

#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/config/load.h"

#include "config/conditions.h"
#include "config/schema.h"
#include "config/text.h"
#include "config/value.h"
#include "config/webhook.h"
#include "hub/name.h"

namespace trainer {
namespace config {
namespace {

constexpr size_t kWidth = 100;

void write_key(const Key& key, const Config& config, const std::string& indent, std::ostream& out) {
  for (const std::string& line : wrap(description(key), kWidth - indent.size()))
    out << indent << "# " << line << "\n";
  const std::string value = value_as_yaml(key, config);
  out << indent << key.name << ": "
      << (is_automatic(key, config) ? concat(key.default_word, "  # here: ", value) : value) << "\n";
}

void write_section(const Section& section, const Config& config, std::ostream& out) {
  out << "\n";
  for (const std::string& line : wrap(section.help, kWidth)) out << "# " << line << "\n";
  if (section.optional && !config.lora) {
    out << section.name << ": null\n";
    return;
  }
  const std::string indent = section.name.empty() ? "" : "  ";
  if (!section.name.empty()) out << section.name << ":\n";
  for (const Key& key : section.keys) {
    if (first_unmet(key, config) == nullptr && !stays_unsaid(key, config))
      write_key(key, config, indent, out);
  }
}

// The path in the cache of the hub as its name, which means the same files on other machines.
void name_path(std::string& path) {
  if (const auto name = hub::name_of(path)) path = name->text();
}

Config for_files(Config config) {
  config.notify.webhook = shown_webhook(config.notify.webhook);
  name_path(config.model.path);
  if (config.lora) name_path(config.lora->adapter);
  for (DataSource& source : config.data.train) name_path(source.path);
  for (DataSource& source : config.data.eval.sources) name_path(source.path);
  return config;
}

}  // namespace
}  // namespace config

void write_yaml(const Config& given, std::ostream& out) {
  const Config config = config::for_files(given);
  out << "# Configuration of trainer " << kVersion << ", every key that has an effect, with its value.\n";
  for (const config::Section& section : config::schema()) config::write_section(section, config, out);
}

}  // namespace trainer
