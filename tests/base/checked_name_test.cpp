#include "base/checked_name.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

const std::string kSha1(40, 'a'), kSha256(64, '0');

TEST(CheckedName, APathStaysBelowItsFolder) {
  for (const char* text : {"a", "a/b.json", ".a", "..a/b..", "a b/ü", "-", "a\\b"}) {
    const auto name = CheckedName::path(text);
    ASSERT_TRUE(name) << text;
    EXPECT_EQ(std::filesystem::path("/folder") / *name, std::string("/folder/") + text);
  }
  for (const std::string text : {"", "/", "/etc/passwd", "..", ".", "../a", "a/../b", "a/..", "a/./b", "./a",
                                 "a//b", "a/", "a\nb", "a\x1b[2Jb", "a\x7f"})
    EXPECT_FALSE(CheckedName::path(text)) << text;
  EXPECT_FALSE(CheckedName::path(std::string("a\0/../../b", 9)));
}

TEST(CheckedName, APartIsNotLongerThanFileSystemsAllow) {
  EXPECT_TRUE(CheckedName::path("a/" + std::string(255, 'x')));
  EXPECT_FALSE(CheckedName::path("a/" + std::string(256, 'x')));
  std::string deep = "a";
  for (int i = 0; i < 2000; i++) deep += "/a";
  EXPECT_FALSE(CheckedName::path(deep));
}

TEST(CheckedName, AFileIsOnePart) {
  EXPECT_TRUE(CheckedName::file("model-00001-of-00002.safetensors"));
  for (const char* text : {"", "a/b", "/a", "a/", "..", "."}) EXPECT_FALSE(CheckedName::file(text)) << text;
}

TEST(CheckedName, AHashHasOnlyDigits) {
  EXPECT_TRUE(CheckedName::hash(kSha1) && CheckedName::hash(kSha256) && CheckedName::commit(kSha1));
  EXPECT_FALSE(CheckedName::commit(kSha256));
  for (const std::string& text : {std::string(), std::string("weak-etag"), std::string(40, 'A'), kSha1 + "a",
                                  kSha1.substr(2) + "..", kSha1.substr(1) + "/", std::string(64, 'g')})
    EXPECT_FALSE(CheckedName::hash(text)) << text;
}

TEST(CheckedName, NoneIsEmpty) {
  EXPECT_TRUE(CheckedName().empty());
  EXPECT_EQ(*CheckedName::file("a"), "a");
}

}  // namespace
}  // namespace trainer
