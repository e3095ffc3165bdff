// A configuration is made of layers, later ones on top: the files that `extends` names, the file, the
// overrides.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "trainer/base/error.h"
#include "trainer/config/config.h"

namespace trainer::config {

// Everything that is wrong with a configuration, collected so that it is reported in one go.

// A place in a file, or with line 0 the source alone: "override 'r=x'".
struct Place {
  std::string source;
  int line = 0, column = 0;

  std::string text() const {
    return line == 0 ? source : source + ":" + std::to_string(line) + ":" + std::to_string(column);
  }
};

struct Problem {
  Place where;
  std::string key;  // "training.batch_size", or ""
  std::string message;
  ExitCode code = ExitCode::usage;  // data, files: what is wrong is a file that the key names
  ErrorCode family = ErrorCode::config_value;

  std::string text() const {
    const std::string place = where.text();
    return (place.empty() ? "" : place + ": ") + (key.empty() ? "" : key + ": ") + message;
  }
};

using Problems = std::vector<Problem>;

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

// What single values cannot show: keys that contradict each other, and what a training run needs.

// Keys that contradict each other. Looks at the values only.
Problems contradictions(const Config& config);

// Required keys, and the files and directories that they name. `names_stay`: names on the hub have not been
// resolved yet, and are no problem.
Problems missing_for_training(const Config& config, bool names_stay = false);

}  // namespace trainer::config
