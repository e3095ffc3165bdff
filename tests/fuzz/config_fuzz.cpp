// A YAML file, then a line "----" and overrides, one a line. An accepted input is written and read again.
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/config/load.h"

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainer;
  const std::string_view text = fuzz::text_of(data, size);
  // Other files are no part of the input.
  if (text.find("extends") != std::string_view::npos) return 0;
  const size_t cut = text.find("\n----\n");
  const auto path = fuzz::put("config.yaml", text.substr(0, cut));
  std::vector<std::string> overrides;
  if (cut != std::string_view::npos) {
    std::istringstream rest{std::string(text.substr(cut + 6))};
    for (std::string line; std::getline(rest, line);) overrides.push_back(line);
  }
  fuzz::accept_errors(text, [&] {
    std::ostringstream yaml;
    write_yaml(load_config(path, overrides), yaml);
    try {
      load_config(fuzz::put("again.yaml", yaml.str()), {});
    } catch (const Error&) {
      std::abort();
    }
  });
  return 0;
}
