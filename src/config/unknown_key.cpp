// What is said of a key that does not exist.
#include <algorithm>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/foreign_keys.h"
#include "config/schema.h"
#include "config/webhook.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

std::string full_name(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

// learning-rate, Learning_Rate -> learning_rate
std::string normalised(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::string> full_names(const std::vector<const Key*>& keys) {
  std::vector<std::string> names;
  for (const Key* key : keys) names.push_back(key->full_name());
  return names;
}

// The key whose name is closest: of the same section if one is close there, else of any.
std::string closest_key(const std::string& section, const std::string& name) {
  std::vector<std::string> in_section, anywhere;
  for (const Section& known : schema()) {
    if (!known.name.empty() && section.empty()) anywhere.push_back(known.name);
    for (const Key& key : known.keys) (key.section == section ? in_section : anywhere).push_back(key.name);
  }
  if (section.empty()) in_section.push_back("extends");
  const std::string near = closest(name, in_section);
  if (!near.empty()) return full_name(section, near);
  const std::string far = closest(name, anywhere);
  if (far.empty() || (section.empty() && find_section(far) != nullptr)) return far;
  return join(full_names(keys_named(far)), " or ");
}

}  // namespace

std::string unknown_key(const std::string& section, const std::string& original_name) {
  const std::string name = normalised(original_name);
  if (!section.empty()) {
    const ForeignKey* foreign = find_foreign_key(normalised(full_name(section, name)));
    if (foreign != nullptr && keys_named(name).empty()) return answer_to(*foreign);
    if (find_section(section) == nullptr) foreign = find_foreign_key(normalised(section));
    if (foreign != nullptr && find_section(section) == nullptr) return answer_to(*foreign);
    if (find_section(name) != nullptr) return concat(name, " is a section of its own, at the top level");
  }
  if (section.empty() && find_key(name) != nullptr && name.find('.') != std::string::npos) {
    return concat("unknown key; in a file a key stands inside its section: `", name.substr(0, name.find('.')),
                  ":`, and below it, indented, `", name.substr(name.find('.') + 1), ":`");
  }
  const std::vector<const Key*> same_name = keys_named(name);
  if (!same_name.empty())
    return concat("unknown key; did you mean ", join(full_names(same_name), " or "), "?");
  if (const ForeignKey* foreign = find_foreign_key(name)) return answer_to(*foreign);
  const std::string near = closest_key(section, name);
  if (!near.empty()) return concat("unknown key; did you mean ", near, "?");
  if (const Section* known = find_section(section)) {
    std::vector<std::string> names;
    for (const Key& key : known->keys) names.push_back(key.name);
    return concat("unknown key; ", section, " has ", join(names));
  }
  return "unknown key; `trainer config --reference` lists all keys";
}

std::string advice_for_value(const std::string& name, const std::string& value) {
  if (name == "adapter" && value == "qlora")
    return concat("write lora: {} and model.quantize: ", smallest_weight_format().name,
                  " (as overrides: lora={} model.quantize=", smallest_weight_format().name, ")");
  if (name == "adapter" && value == "lora")
    return "a section lora: {} turns LoRA on (as an override: lora={})";
  if (name == "lora" && value == "true") return "write lora: {} (as an override: lora={})";
  if (name == "lora" && value == "false") return "leave it out: without it all weights are trained";
  if (name == "optimizer" || name == "optim") {
    if (value.find("8bit") != std::string::npos) return "write optimizer.name: adamw_8bit";
    if (value.starts_with("paged_"))
      return "write optimizer.name: adamw and, for its state outside the GPU, memory.offload: [optimizer]";
    if (value.starts_with("adamw")) return "write optimizer.name: adamw";
    return concat("write optimizer.name: ", value);
  }
  if (name == "model") return concat("write model.path=", value);
  if (name == "data") return concat("write data.train=", value);
  return "";
}

}  // namespace trainer::config

namespace trainer {

std::string advice_for_flag(const std::string& name, const std::string& value) {
  using namespace config;
  const std::string normal = normalised(name);
  const std::vector<const Key*> same_name = keys_named(normal);
  const ForeignKey* foreign = find_foreign_key(normal);
  std::string key;
  if (normal == "model" || normal == "data" || normal == "optimizer") {
    key = normal == "model" ? "model.path" : normal == "data" ? "data.train" : "optimizer.name";
  } else if (find_key(normal) != nullptr || find_section(normal) != nullptr) {
    key = normal;
  } else if (same_name.size() == 1) {
    key = same_name[0]->full_name();
  } else if (foreign != nullptr && *foreign->note == '\0' && !foreign->is_value()) {
    key = foreign->ours;
  } else if (foreign != nullptr) {
    return answer_to(*foreign);
  } else {
    return "";
  }
  return concat("keys of the configuration are written without dashes: ",
                shown_override(concat(key, "=", value.empty() ? "VALUE" : value)));
}

}  // namespace trainer
