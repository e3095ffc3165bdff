#include "config/yaml_text.h"

#include <sstream>

#include <yaml-cpp/eventhandler.h>

namespace trainer::config {
namespace {

// Notes where documents start.
class DocumentStarts : public YAML::EventHandler {
 public:
  YAML::Mark last;

  void OnDocumentStart(const YAML::Mark& mark) override { last = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

bool indented_with_tab(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string current;
  for (int i = 0; i <= line && std::getline(lines, current); i++) {
  }
  return current.substr(0, current.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  // With a comment at the end, yaml-cpp notices a quote that is never closed.
  const std::string ended = text + "\n#";
  // A stray ',' or ']' ends a document for yaml-cpp: YAML::Load would ignore what follows, YAML::LoadAll
  // never returns.
  std::istringstream stream(ended);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (parser.HandleNextDocument(starts) && parser.HandleNextDocument(starts)) {
    throw YAML::ParserException(starts.last,
                                "text that is no part of the sections and keys, or a second document");
  }
  return YAML::Load(ended);
}

std::string yaml_problem(const YAML::Exception& error, const std::string& text) {
  if (indented_with_tab(text, error.mark.line)) return "indented with a tab; YAML wants spaces";
  if (error.msg == "illegal map value") return "a ':' where none can be; quote text that holds one";
  if (error.msg == "illegal EOF in scalar") return "a quote that is never closed";
  if (error.msg.starts_with("end of map not found"))
    return "a line that belongs to no section; check its indentation";
  return error.msg;
}

}  // namespace trainer::config
