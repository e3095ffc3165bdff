#include "base/checksum.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

// As `xxhsum -H3` (0.8.1) prints them.
TEST(Checksum, IsThatOfTheKnownProgram) {
  EXPECT_EQ(checksum(""), "2d06800538d394c2");
  EXPECT_EQ(checksum("a"), "e6c632b61e964e1f");
}

TEST(Checksum, OfAFileIsThatOfItsBytes) {
  test::TemporaryDirectory directory;
  for (size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{5} << 20) + 3}) {
    std::string content(size, 'x');
    for (size_t i = 0; i < size; i += 1000) content[i] = static_cast<char>(i / 1000);
    write_atomically(directory / "a", content);
    EXPECT_EQ(file_checksum(directory / "a"), checksum(content)) << size;
  }
}

TEST(Checksum, EveryBitCounts) {
  std::string bytes(100, 'x');
  const std::string before = checksum(bytes);
  for (size_t bit = 0; bit < 800; bit++) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(checksum(bytes), before) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
}

TEST(Checksum, AFileThatCannotBeReadIsNamed) {
  test::TemporaryDirectory directory;
  for (const std::filesystem::path& path : {directory / "missing", directory.path()}) {
    const std::string message = test::error_message<FormatError>([&] { file_checksum(path); });
    EXPECT_TRUE(test::contains(message, path.string())) << message;
  }
}

}  // namespace
}  // namespace trainer
