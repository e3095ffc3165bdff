#include "base/yaml_text.h"

#include <array>
#include <map>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <yaml-cpp/eventhandler.h>

namespace trainer {
namespace {

constexpr const char *kLoop = "an alias (*name) inside of what it stands for",
                     *kBomb = "aliases (*name) that stand for far more than the file has";

// Follows the structure of one document. A parsed document has each anchor once, but whoever walks through it
// meets its content at each alias: without end where an alias is a part of itself.
class Structure : public YAML::EventHandler {
 public:
  YAML::Mark start;
  std::vector<RepeatedKey> repeated;

  void OnDocumentStart(const YAML::Mark& mark) override { start = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t anchor) override { leaf(anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!open_.empty() && open_.back().expects_key) add_key(value, mark);
    leaf(anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    for (const Open& outer : open_) {
      if (outer.anchor == anchor) throw YAML::ParserException(mark, kLoop);
    }
    const size_t size = sizes_[anchor];
    from_aliases_ += size;
    if (from_aliases_ > kMostFromAliases) throw YAML::ParserException(mark, kBomb);
    nodes_ += size;
    next();
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({anchor, nodes_++, false, false, {}});
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({anchor, nodes_++, true, true, {}});
  }
  void OnMapEnd() override { close(); }

 private:
  static constexpr size_t kMostFromAliases = 100'000;  // people write some dozens

  // A sequence or a mapping whose end has not been read yet.
  struct Open {
    YAML::anchor_t anchor;
    size_t begin;  // the nodes before it
    bool is_map, expects_key;
    std::map<std::string, YAML::Mark> keys;
  };

  void add_key(const std::string& name, const YAML::Mark& mark) {
    const auto [first, is_new] = open_.back().keys.emplace(name, mark);
    if (!is_new) repeated.push_back({name, mark, first->second, open_.size()});
  }
  void leaf(YAML::anchor_t anchor) {
    nodes_++;
    if (anchor != 0) sizes_[anchor] = 1;
    next();
  }
  void close() {
    const Open closed = std::move(open_.back());
    open_.pop_back();
    if (closed.anchor != 0) sizes_[closed.anchor] = nodes_ - closed.begin;
    next();
  }
  // After a key comes its value, and the other way round.
  void next() {
    if (!open_.empty() && open_.back().is_map) open_.back().expects_key = !open_.back().expects_key;
  }

  std::vector<Open> open_;  // the outermost first
  std::map<YAML::anchor_t, size_t> sizes_;
  size_t nodes_ = 0, from_aliases_ = 0;
};

bool indented_with_tab(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string current;
  for (int i = 0; i <= line && std::getline(lines, current); i++) {
  }
  return current.substr(0, current.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

// How messages of yaml-cpp begin, and what they mean.
constexpr std::array<std::pair<const char*, const char*>, 21> kMeanings{
    {{"illegal map value", "a ':' where none can be; quote text that holds one"},
     {"illegal EOF in scalar", "a quote that is never closed"},
     {"end of map not found", "a line that belongs to no section; check its indentation"},
     {"end of map flow not found", "a '{' that is never closed"},
     {"end of sequence not found", "a line that belongs to no list; check its indentation"},
     {"end of sequence flow not found", "a '[' that is never closed"},
     {"illegal flow end", "a ']' or '}' that closes nothing"},
     {"illegal block entry", "a '-' where no list can begin; check its indentation"},
     {"illegal map key", "a key where none can be; check its indentation"},
     {"unknown token",
      "a character that begins nothing here; quote text that begins with one like @, ` or %"},
     {"unknown escape character",
      "a backslash in double quotes that stands for nothing; write \\\\, or use "
      "single quotes"},
     {"bad character found while scanning hex", "a \\x, \\u or \\U without its hexadecimal digits"},
     {"invalid unicode", "a \\u or \\U that is no character; write the character itself"},
     {"the referenced anchor is not defined", "an alias (*name) of which there is no &name before"},
     {"alias not found", "a '*' without a name; quote text that begins with one"},
     {"anchor not found", "a '&' without a name; quote text that begins with one"},
     {"illegal character found while scanning a",
      "a name after '*' or '&' that is none; quote text that begins "
      "with one"},
     {"illegal document indicator", "a line --- or ... inside of a quoted text"},
     {"unexpected character in block scalar", "a character after '|' or '>' that does not belong there"},
     {"bad file", "lists and mappings that are nested too deeply"},
     {"illegal tab", "indented with a tab; YAML wants spaces"}}};

}  // namespace

YAML::Node parse_yaml(const std::string& text) {
  // With a comment at the end, yaml-cpp notices a quote that is never closed.
  const std::string ended = text + "\n#";
  // A stray ',' or ']' ends a document for yaml-cpp: YAML::Load would ignore what follows, YAML::LoadAll
  // never returns.
  std::istringstream stream(ended);
  YAML::Parser parser(stream);
  Structure structure;
  if (parser.HandleNextDocument(structure) && parser.HandleNextDocument(structure)) {
    throw YAML::ParserException(structure.start,
                                "text that is no part of the sections and keys, or a second document");
  }
  return YAML::Load(ended);
}

namespace {

constexpr const char* kNoMerge = "<< stands before an alias of a mapping (<<: *name), or a list of those";

using Entries = std::vector<std::pair<YAML::Node, YAML::Node>>;

// In quotes, << is a name like any other.
bool is_merge_key(const YAML::Node& key) {
  return key.IsScalar() && key.Scalar() == "<<" && key.Tag() != "!";
}

// Adds the entries of a mapping, those of its merge keys before its own: of two with one name, the later
// counts.
void add_entries(const YAML::Node& mapping, Entries& entries) {
  Entries own;
  for (const auto& entry : mapping) {
    if (!is_merge_key(entry.first)) {
      own.emplace_back(entry.first, entry.second);
      continue;
    }
    std::vector<YAML::Node> merged;
    if (entry.second.IsSequence()) {
      for (const auto& item : entry.second) merged.push_back(item);
    } else {
      merged.push_back(entry.second);
    }
    for (auto one = merged.rbegin(); one != merged.rend(); ++one) {
      if (!one->IsMap()) throw YAML::ParserException(entry.first.Mark(), kNoMerge);
      add_entries(*one, entries);
    }
  }
  entries.insert(entries.end(), own.begin(), own.end());
}

YAML::Node merged_mapping(const YAML::Node& mapping) {
  Entries entries;
  add_entries(mapping, entries);
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < entries.size(); i++) {
    if (entries[i].first.IsScalar()) last[entries[i].first.Scalar()] = i;
  }
  YAML::Node out(YAML::NodeType::Map);
  std::set<std::string> added;
  for (const auto& [key, value] : entries) {
    const bool is_name = key.IsScalar();
    if (is_name && !added.insert(key.Scalar()).second) continue;
    out.force_insert(key, with_merged_keys(is_name ? entries[last[key.Scalar()]].second : value));
  }
  return out;
}

}  // namespace

YAML::Node with_merged_keys(const YAML::Node& node) {
  if (node.IsMap()) return merged_mapping(node);
  if (!node.IsSequence()) return node;
  YAML::Node out(YAML::NodeType::Sequence);
  for (const auto& item : node) out.push_back(with_merged_keys(item));
  return out;
}

std::vector<RepeatedKey> repeated_keys(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Structure structure;
  parser.HandleNextDocument(structure);
  return structure.repeated;
}

std::string yaml_problem(const YAML::Exception& error, const std::string& text) {
  if (indented_with_tab(text, error.mark.line)) return "indented with a tab; YAML wants spaces";
  for (const auto& [begin, meaning] : kMeanings) {
    if (error.msg.starts_with(begin)) return meaning;
  }
  const bool is_ours = error.msg == kLoop || error.msg == kBomb || error.msg == kNoMerge ||
                       error.msg.starts_with("text that is no part of");
  return is_ours ? error.msg : "is no YAML here; check the quotes, colons and indentation of this line";
}

}  // namespace trainer
