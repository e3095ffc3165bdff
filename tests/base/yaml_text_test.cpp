#include "base/yaml_text.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

std::string text_of(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  std::string items;
  for (const auto& item : node) {
    items += items.empty() ? "" : ", ";
    items += node.IsMap() ? text_of(item.first) + ": " + text_of(item.second) : text_of(item);
  }
  return node.IsMap() ? "{" + items + "}" : "[" + items + "]";
}

// As yaml.safe_load of PyYAML 6.0 reads them.
std::string merged(const std::string& text) { return text_of(with_merged_keys(parse_yaml(text))); }

TEST(MergedKeys, AreAppliedAtEveryLevel) {
  EXPECT_EQ(merged("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3, z: 4}"),
            "{a: {x: 1, y: 2}, b: {x: 1, y: 3, z: 4}}");
  EXPECT_EQ(merged("a: &a {x: 1}\nlist:\n  - {deep: {<<: *a, y: 2}}\n  - <<: *a"),
            "{a: {x: 1}, list: [{deep: {x: 1, y: 2}}, {x: 1}]}");
  EXPECT_EQ(merged("a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, z: 3}"),
            "{a: {x: 1}, b: {x: 1, y: 2}, c: {x: 1, y: 2, z: 3}}");
  EXPECT_EQ(merged("<<: {x: 1, y: 2}\ny: 3"), "{x: 1, y: 3}");
}

TEST(MergedKeys, TheFirstOfAListCountsAndTheLastOfSeveral) {
  EXPECT_EQ(merged("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}"),
            "{a: {x: 1}, b: {x: 2, y: 2}, c: {x: 1, y: 2}}");
  EXPECT_EQ(merged("a: &a {x: 1}\nb: &b {x: 2}\nc: {<<: *a, <<: *b}"), "{a: {x: 1}, b: {x: 2}, c: {x: 2}}");
}

TEST(MergedKeys, InQuotesAreNames) { EXPECT_EQ(merged("\"<<\": {x: 1}"), "{<<: {x: 1}}"); }

TEST(MergedKeys, AreRefusedBeforeAnythingElse) {
  for (const char* text : {"<<: 1", "a: {<<: [{x: 1}, 2]}", "<<: "}) {
    const std::string why = [&] {
      try {
        merged(text);
      } catch (const YAML::Exception& error) {
        return yaml_problem(error, text);
      }
      return std::string();
    }();
    EXPECT_EQ(why, "<< stands before an alias of a mapping (<<: *name), or a list of those") << text;
  }
}

}  // namespace
}  // namespace trainer
