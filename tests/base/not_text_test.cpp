#include "base/not_text.h"

#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::TemporaryDirectory;

std::string why(const std::string& content) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file", std::ios::binary) << content;
  try {
    EXPECT_EQ(read_text(directory / "file"), content);
    return "";
  } catch (const FormatError& error) {
    return error.what();
  }
}

TEST(ReadText, NamesWhatIsNoText) {
  EXPECT_EQ(why("a: 1\nb: \xc3\xa9\n"), "");
  EXPECT_EQ(why(""), "");
  EXPECT_TRUE(contains(why(std::string("\x1f\x8b\x08\0", 4)), "file: is compressed with gzip; unpack it"));
  EXPECT_TRUE(contains(why("\x28\xb5\x2f\xfd"), "file: is compressed with zstd; unpack it"));
  EXPECT_TRUE(contains(why(std::string("\xff\xfe"
                                       "a\0",
                                       4)),
                       "file: is UTF-16; save the file as UTF-8"));
  EXPECT_TRUE(contains(why("<!DOCTYPE html>\n"), "is a page of HTML"));
  EXPECT_TRUE(contains(why(std::string("a: 1\nb: \0\0", 10)), "file: is no text: it has a byte 0 at line 2"));
  EXPECT_TRUE(
      contains(why("a: 1\n\nb: \xe9t\xe9\n"), "file: is not UTF-8 at line 3; save the file as UTF-8"));
}

TEST(ReadText, NamesThePointersThatStandForFiles) {
  for (const char* host : {"git-lfs.github.com", "hawser.github.com"}) {
    const std::string said =
        why(std::string("version https://") + host + "/spec/v1\noid sha256:00\nsize 5\n");
    EXPECT_TRUE(contains(said, "is the pointer of Git LFS, not the file itself")) << said;
    EXPECT_TRUE(contains(said, "git lfs pull")) << said;
  }
  EXPECT_TRUE(contains(why("/annex/objects/SHA256E-s5--00.jsonl\n"), "git annex get"));
}

}  // namespace
}  // namespace trainer
