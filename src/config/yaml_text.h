// Parsing YAML text, with the places where yaml-cpp is too trusting closed.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

namespace trainer::config {

// The one document that the text holds (null when it is empty). Throws YAML::ParserException: malformed, text
// after the document's end, a quote that is never closed.
YAML::Node parse_yaml(const std::string& text);

// What is wrong with `text`, in words.
std::string yaml_problem(const YAML::Exception& error, const std::string& text);

}  // namespace trainer::config
