// A configuration is made of layers, later ones on top: the files that `extends` names, the file, the
// overrides.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "config/problems.h"

namespace trainer::config {

// A key and its value as written. With an empty name, the section itself was given: as a mapping or null.
struct Setting {
  std::string section, name;
  YAML::Node value;
  Place where_key, where_value;
  bool takes_back = false;  // what files set: the key has its default again
};

using Layer = std::vector<Setting>;

// The place that a mark of yaml-cpp stands for.
using Where = std::function<Place(const YAML::Mark&)>;

// The file's layer with those of all files it extends before it. What cannot be read becomes a problem.
std::vector<Layer> read_layers(const std::filesystem::path& file, Problems& problems);

// Command-line overrides: "section.key=value", "key=value", "key=null", "section=null",
// "section={key: value}".
Layer read_overrides(const std::vector<std::string>& overrides, Problems& problems);

// The settings inside a section's mapping, appended to `layer`.
void read_section(const std::string& section, const YAML::Node& mapping, const Where& where, Layer& layer,
                  Problems& problems);

}  // namespace trainer::config
