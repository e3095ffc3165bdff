// Used by tests/parity/metrics. Reads lines of {"predictions", "targets"} from stdin, and writes lines with
// the values of all metrics to stdout.
#include <iostream>

#include <nlohmann/json.hpp>

#include "trainer/text/metrics.h"

int main() {
  using Json = nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const Json corpus = Json::parse(line);
    trainer::TextMetrics metrics({"exact_match", "f1", "rouge", "bleu", "chrf", "ter", "json"});
    for (size_t i = 0; i < corpus["predictions"].size(); i++) {
      metrics.add(corpus["predictions"][i].get_ref<const std::string&>(),
                  corpus["targets"][i].get_ref<const std::string&>());
    }
    Json values = Json::object();
    for (const auto& [name, value] : metrics.values()) values[name] = value;
    std::cout << values.dump() << '\n';
  }
}
