// A sign that is added at the start of a text alone (Metaspace, "first") stands where the `tokenizers`
// library puts it, whatever the normalizer did to the first character (tests/make_goldens/first_signs).
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/text/tokenizer.h"

#include "support/temporary_directory.h"
#include "text/text_goldens.h"

namespace trainer {
namespace {

TEST(FirstSigns, AreThoseOfTheReference) {
  const auto cases = nlohmann::json::parse(read_file(golden("first_signs.json")));
  ASSERT_GT(cases.size(), 10u);
  for (const auto& one : cases) {
    const test::TemporaryDirectory directory;
    std::ofstream(directory / "tokenizer.json") << one["tokenizer"].dump();
    std::ofstream(directory / "tokenizer_config.json") << R"({"tokenizer_class": "PreTrainedTokenizerFast"})";
    const auto tokenizer = load_tokenizer(directory.path());
    for (const auto& row : one["rows"]) {
      const auto expected = row["ids"].get<std::vector<int32_t>>();
      const auto text = row["text"].get<std::string>();
      const std::string where = one["tokenizer"]["normalizer"].dump() + ": '" + text + "'";
      EXPECT_EQ(tokenizer->encode(text, false), expected) << where;
      EXPECT_EQ(tokenizer->encode_with_ranges(text, false).ids, expected) << where;
    }
  }
}

}  // namespace
}  // namespace trainer
