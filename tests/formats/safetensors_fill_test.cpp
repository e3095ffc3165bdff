// Files that one process makes with room for the tensors of others.
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/formats/safetensors.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::error_message;

TensorSource of_bytes(Dtype dtype, std::vector<int64_t> shape, const std::string& bytes) {
  return {dtype, std::move(shape), [bytes](std::ostream& out) { out << bytes; }};
}

std::string bytes_in(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.tensors.at(name);
  return {reinterpret_cast<const char*>(view.data), view.nbytes};
}

class RoomInFile : public testing::Test {
 protected:
  // "mine" is written; "theirs" and "last", which ends the file, are not.
  RoomInFile() {
    write_safetensors(path_, {{"mine", of_bytes(Dtype::f32, {2}, "AAAABBBB")},
                              {"theirs", {Dtype::f32, {1, 3}, nullptr}},
                              {"last", {Dtype::u8, {5}, nullptr}}});
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "room.safetensors";
};

TEST_F(RoomInFile, IsWholeAndReadsAsZeros) {
  const SafetensorsFile file = read_safetensors(path_);
  EXPECT_EQ(bytes_in(file, "mine"), "AAAABBBB");
  EXPECT_EQ(bytes_in(file, "theirs"), std::string(12, '\0'));
  EXPECT_EQ(bytes_in(file, "last"), std::string(5, '\0'));
}

TEST_F(RoomInFile, IsFilledByOthersAndTheRestStays) {
  fill_safetensors(path_, {{"last", of_bytes(Dtype::u8, {5}, "12345")}});
  fill_safetensors(path_, {{"theirs", of_bytes(Dtype::f32, {1, 3}, "aaaabbbbcccc")}});
  const SafetensorsFile file = read_safetensors(path_);
  EXPECT_EQ(bytes_in(file, "mine"), "AAAABBBB");
  EXPECT_EQ(bytes_in(file, "theirs"), "aaaabbbbcccc");
  EXPECT_EQ(bytes_in(file, "last"), "12345");
}

TEST_F(RoomInFile, TakesNoOtherTensor) {
  const auto message = [&](const std::string& name, const TensorSource& tensor) {
    const std::string text = error_message<FormatError>([&] { fill_safetensors(path_, {{name, tensor}}); });
    return text.substr(text.find("tensor '"));
  };
  EXPECT_EQ(message("other", of_bytes(Dtype::u8, {1}, "1")), "tensor 'other': the file has no room for it");
  EXPECT_EQ(message("last", of_bytes(Dtype::u8, {4}, "1234")),
            "tensor 'last': the file has room for U8 [5], not for U8 [4]");
  EXPECT_EQ(message("last", of_bytes(Dtype::u8, {5}, "1234")),
            "tensor 'last': 4 bytes were written where it has 5");
}

}  // namespace
}  // namespace trainer
