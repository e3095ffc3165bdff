// Parquet files give the samples of the same rows as JSON lines (tests/goldens/parquet).
#include <filesystem>
#include <fstream>

#include "trainer/base/files.h"

#include "data/fixture.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

class Parquet : public DataTest {
 protected:
  Parquet() { config_.data.cache = (folder_ / "cache").string(); }
  void SetUp() override {
    if (!fs::exists(fs::path(BUILD_DIR) / "libtrainer_parquet.so"))
      GTEST_SKIP() << "built without Parquet: there is no pyarrow";
  }

  static std::string golden(const std::string& name) {
    return (fs::path(SOURCE_DIR) / "tests/goldens/parquet" / name).string();
  }
  // A copy of a golden file in the folder of the test, with some bytes changed.
  std::string changed(const std::string& name, size_t at, size_t bytes) const {
    std::string content = read_file(golden(name));
    for (size_t i = at; i < at + bytes; i++) content[i] = static_cast<char>(content[i] ^ 0x5a);
    return write(name, content);
  }
  static void expect_same(const Dataset& data, const Dataset& expected) {
    ASSERT_EQ(data.size(), expected.size());
    for (int64_t i = 0; i < data.size(); i++) {
      EXPECT_EQ(data.sample(i).input_ids, expected.sample(i).input_ids) << i;
      EXPECT_EQ(data.sample(i).labels, expected.sample(i).labels) << i;
      EXPECT_EQ(data.texts(i).input, expected.texts(i).input) << i;
      EXPECT_EQ(data.texts(i).target, expected.texts(i).target) << i;
      EXPECT_EQ(data.content(i), expected.content(i)) << i;
    }
  }
};

TEST_F(Parquet, PairsAreThoseOfTheSameRowsInEveryCompression) {
  for (const char* codec : {"zstd", "snappy", "gzip", "none"}) {
    const Dataset data = open(golden(concat("pairs.", codec, ".parquet")));
    expect_same(data, open(golden("pairs.jsonl")));
    EXPECT_TRUE(ends(data.origin(20), concat("pairs.", codec, ".parquet:21")));
  }
}

TEST_F(Parquet, EveryKindOfValueIsThatOfTheSameRows) {
  config_.data.kind = DataKind::chat;  // a template sees all fields of a message
  config_.data.chat_template =
      write("all.jinja",
            "{% for m in messages %}{{ m.role }}: {{ m | tojson }}{{ m.content }}. {% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}");
  config_.data.loss_on = LossOn::everything;
  expect_same(open(golden("chats.parquet"), false), open(golden("chats.jsonl"), false));
  config_.data.kind = DataKind::automatic;
  config_.data.bad_rows = BadRows::skip;  // else the first row says enough
  for (const char* field : {"whole", "small", "large", "real", "maybe", "nothing", "list", "map"}) {
    config_.data.input = field;
    config_.data.target = "target";
    const auto problem = [&](const char* file) {
      std::string said = error_of([&] { open(golden(file)); });
      for (size_t at; (at = said.find(golden(file))) != std::string::npos;)
        said.replace(at, golden(file).size(), "FILE");
      return said;
    };
    EXPECT_NE(problem("pairs.jsonl"), "") << field;
    EXPECT_EQ(problem("pairs.zstd.parquet"), problem("pairs.jsonl")) << field;
  }
}

TEST_F(Parquet, TimesAndDecimalsAreText) {
  config_.data.input = "{time} {price}";
  config_.data.target = "target";
  EXPECT_EQ(open(golden("pairs.zstd.parquet")).texts(0).input, "2024-02-29 12:30:00.000000 1.50");
}

TEST_F(Parquet, ConversationsAreListsOfStructs) {
  config_.data.chat_template =
      write("words.jinja",
            "<s> {% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' </s> ' }}{% endfor %}"
            "{% if add_generation_prompt %}a{% endif %}");
  const Dataset data = open(golden("chats.parquet"), false);
  EXPECT_EQ(data.report().kind, DataKind::chat);
  expect_same(data, open(golden("chats.jsonl"), false));
}

// Of a list's nulls and of those of a whole column the rows know; they are in the JSON lines, too.
TEST_F(Parquet, NullsThatOnlyFillTheTypeOfAColumnAreNotInTheRows) {
  config_.data.chat_template =
      write("calls.jinja",
            "{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m | tojson }}{{ m.content }}"
            "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}. {% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}");
  config_.data.loss_on = LossOn::everything;
  const Dataset data = open(golden("calls.parquet"), false);
  ASSERT_EQ(data.size(), 3);
  expect_same(data, open(golden("calls.jsonl"), false));
  std::string lines;
  for (const auto& file : fs::directory_iterator(folder_ / "cache" / "unpacked"))
    lines = read_file(file.path());
  EXPECT_TRUE(has(lines, R"("arguments":{"city":"Paris"})")) << lines;
  EXPECT_TRUE(has(lines, R"("after":[null,2])")) << lines;
}

TEST_F(Parquet, OnlyTheColumnsInUseAreRead) {
  config_.data.input = "input";
  config_.data.target = "target";
  open(golden("pairs.zstd.parquet"));
  std::string lines;
  for (const auto& file : fs::directory_iterator(folder_ / "cache" / "unpacked"))
    lines = read_file(file.path());
  EXPECT_TRUE(starts(lines, "{\"input\":"));
  EXPECT_EQ(lines.find("\"whole\""), std::string::npos);
}

TEST_F(Parquet, ColumnsThatCannotBeUsedAreNamedBeforeAnythingIsUnpacked) {
  config_.data.input = "inptu";
  config_.data.target = "target";
  const auto problem = [&] { return error_of([&] { open(golden("pairs.zstd.parquet")); }); };
  EXPECT_TRUE(has(problem(), "pairs.zstd.parquet:1: field \"inptu\" is missing (the row has \"input\""));
  config_.data.input = "list";
  EXPECT_TRUE(has(problem(), "pairs.zstd.parquet:2: field \"list\" is an array, not text"));
  config_.data.input = "input";
  EXPECT_TRUE(
      has(error_of([&] {
            Dataset::open({golden("pairs.zstd.parquet"), golden("chats.parquet")}, config_, t5_, true);
          }),
          "chats.parquet:1: field \"input\" is missing"));
  EXPECT_FALSE(fs::exists(folder_ / "cache" / "unpacked"));
}

TEST_F(Parquet, BytesAreTextOnlyWhereTheyAreAskedFor) {
  EXPECT_NO_THROW(open(golden("pairs.zstd.parquet")));
  config_.data.input = "picture";
  config_.data.target = "target";
  EXPECT_TRUE(has(error_of([&] { open(golden("pairs.zstd.parquet")); }),
                  "pairs.zstd.parquet:1: invalid UTF-8"));
}

TEST_F(Parquet, DamageIsNamedByFileRowGroupAndColumn) {
  EXPECT_TRUE(starts(error_of([&] { open(write("text.parquet", "{\"input\": \"one\"}\n")); }),
                     "text.parquet: is no Parquet file, or is damaged or incomplete; "));
  const std::string whole = read_file(golden("pairs.none.parquet"));
  EXPECT_TRUE(starts(error_of([&] { open(write("cut.parquet", whole.substr(0, whole.size() / 2))); }),
                     "cut.parquet: is no Parquet file, or is damaged or incomplete; "));
  // The first page of the column `input`.
  const std::string said = error_of([&] { open(changed("pairs.zstd.parquet", 4, 12)); });
  EXPECT_TRUE(starts(said, "pairs.zstd.parquet: row group 0 (from row 1), column \"input\": "));
  EXPECT_FALSE(fs::exists(folder_ / "cache" / "unpacked") && !fs::is_empty(folder_ / "cache" / "unpacked"));
}

TEST_F(Parquet, NoDamageEndsTheProgram) {
  const size_t size = read_file(golden("pairs.zstd.parquet")).size();
  int64_t refused = 0;
  for (size_t at = 0; at + 4 < size; at += size / 150) {
    const std::string path = changed("pairs.zstd.parquet", at, 3);
    refused += !error_of([&] { open(path); }).empty();
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace trainer
