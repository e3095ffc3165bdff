// trainer tokenize. The ids are those of Hugging Face's tokenizer: tests/goldens/text/t5/encoded.json.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/run_program.h"
#include "support/error_message.h"

namespace trainer::test {
namespace {

using Json = nlohmann::json;

const std::string kModel = SOURCE_DIR "/tests/goldens/text/t5";

Outcome tokenize(const std::string& rows, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"tokenize", "--model", kModel, "--input", "-"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, rows);
}

Json goldens() { return Json::parse(content_of(kModel + "/encoded.json")); }

TEST(Tokenize, GivesTheIdsOfHuggingFace) {
  std::string rows, expected;
  for (const Json& golden : goldens()) {
    rows += Json{{"text", golden["text"]}}.dump() + "\n";
    expected += Json{{"ids", golden["ids"]}}.dump() + "\n";
  }
  const Outcome outcome = tokenize(rows);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, expected);
}

TEST(Tokenize, DecodesWithAndWithoutSpecialTokens) {
  const TemporaryDirectory directory;
  std::string whole, skipped;
  {
    std::ofstream rows(directory / "ids.jsonl");
    for (const Json& golden : goldens()) {
      rows << Json{{"ids", golden["ids"]}}.dump() << "\n";
      whole += Json{{"text", golden["decoded"]}}.dump() + "\n";
      skipped += Json{{"text", golden["skipped"]}}.dump() + "\n";
    }
  }
  const std::vector<std::string> arguments{
      "tokenize", "--model", kModel, "--input", (directory / "ids.jsonl").string(), "--decode"};
  EXPECT_EQ(run_program(arguments).out, whole);
  std::vector<std::string> with_skipping = arguments;
  with_skipping.push_back("--skip-special-tokens");
  EXPECT_EQ(run_program(with_skipping).out, skipped);
}

TEST(Tokenize, ABadRowIsNamedByItsLine) {
  const auto expect_bad = [](const Outcome& outcome, const std::string& words) {
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_TRUE(contains(outcome.err, words)) << outcome.err;
  };
  expect_bad(tokenize("{\"text\": \"a\"}\n\n{\"tex\": 1}\n"),
             "stdin:3: the row has no field 'text'; it has 'tex'");
  expect_bad(tokenize("{\"text\": 1}\n"), "stdin:1: 'text' must be a string, found number");
  expect_bad(tokenize("{\"text\": \"a\n"), "stdin:1: malformed JSON");
  expect_bad(tokenize("[1]\n"), "stdin:1: expected a row");
  expect_bad(tokenize("{\"ids\": [1.5]}\n", {"--decode"}),
             "stdin:1: 'ids' must be a list of token ids, found 1.5");
  expect_bad(tokenize("{\"ids\": [99999999]}\n", {"--decode"}), "stdin:1: ");
  expect_bad(
      tokenize("{\"ids\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}\n", {"--decode"}),
      "stdin:1: is nested too deep");
  expect_bad(run_program({"tokenize", "--model", kModel, "--input", "nope.jsonl"}),
             "nope.jsonl: cannot be opened");
}

TEST(Tokenize, ANumberThatIsTooLargeIsNamedByItsLine) {
  const Outcome real = tokenize("{\"text\": \"a\"}\n{\"text\": \"a\", \"x\": 1e400}\n");
  EXPECT_EQ(real.exit_code, 3);
  EXPECT_TRUE(contains(real.err, "stdin:2: has the number 1e400, which does not fit in 64 bits")) << real.err;
  EXPECT_EQ(tokenize("{\"text\": \"a\", \"x\": 18446744073709551616}\n").exit_code, 0);

  const TemporaryDirectory directory;
  std::ofstream(directory / "t.jinja") << "{{ messages | tojson }}";
  const auto chat = [&](const std::string& more) {
    return tokenize(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"18446744073709551616\"" + more + "}]}\n",
        {"--chat", "--chat-template", (directory / "t.jinja").string(), "--loss-on", "everything"});
  };
  EXPECT_TRUE(contains(chat(", \"n\": 9007199254740993").out, "9007199254740993"));
  const Outcome integer = chat(", \"n\": 18446744073709551616");
  EXPECT_EQ(integer.exit_code, 3);
  EXPECT_TRUE(contains(integer.err, "stdin:1: has the integer 18446744073709551616, which is beyond 64 bits"))
      << integer.err;
}

TEST(Tokenize, RowsWithVeryManyKeysAreReadInLinearTime) {
  std::string keys;
  for (int i = 0; i < 200'000; i++) keys += "\"k" + std::to_string(i) + "\": 1, ";
  EXPECT_EQ(tokenize("{" + keys + "\"text\": \"a\"}\n").out, tokenize("{\"text\": \"a\"}\n").out);
}

TEST(Tokenize, AMissingModelIsAFormatError) {
  const Outcome outcome = run_program({"tokenize", "--model", "no/such/model", "--input", "-"});
  EXPECT_EQ(outcome.exit_code, 4);
  EXPECT_TRUE(contains(outcome.err, "no/such/model")) << outcome.err;
}

}  // namespace
}  // namespace trainer::test
