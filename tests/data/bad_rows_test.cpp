// Data that cannot be used: one clear message with file, line and what to do.
#include "data/fixture.h"

namespace trainer {
namespace {

using BadRowsTest = DataTest;

constexpr const char* kGoodRow = "{\"input\": \"one\", \"target\": \"two\"}\n";
std::string after_good(const std::string& row) { return kGoodRow + row + "\n"; }

TEST_F(BadRowsTest, MissingFile) {
  const std::string message = error_of([&] { open((folder_ / "none.jsonl").string()); });
  EXPECT_TRUE(starts(message, "none.jsonl: "));
  EXPECT_TRUE(has(message, "No such file"));
}

TEST_F(BadRowsTest, FolderInsteadOfFile) {
  EXPECT_TRUE(has(error_of([&] { open(folder_.string()); }), "the folder holds no data files"));
}

TEST_F(BadRowsTest, FolderOfSaveToDisk) {
  for (const char* name : {"state.json", "dataset_info.json"}) write(name, "{\n  \"features\": 1\n}");
  EXPECT_TRUE(has(error_of([&] { open(folder_.string()); }), "is a data set in Arrow files"));
  std::filesystem::remove(folder_ / "state.json");
  write("dataset_dict.json", "{\"splits\": [\"train\"]}");
  EXPECT_TRUE(has(error_of([&] { open(folder_.string()); }), "is a data set in Arrow files"));
}

TEST_F(BadRowsTest, NoFiles) {
  EXPECT_TRUE(has(error_of([&] { Dataset::open({}, config_, t5_, true); }), "no data files"));
}

TEST_F(BadRowsTest, EmptyFiles) {
  EXPECT_EQ(error(""), "data.jsonl: the file is empty; it must hold one JSON object a line");
  EXPECT_TRUE(has(error("\n\r\n \t\n"), "the file is empty"));
  EXPECT_TRUE(has(error("\xef\xbb\xbf"), "the file is empty"));
  EXPECT_TRUE(has(error("[ ]"), "holds no rows"));
}

TEST_F(BadRowsTest, MalformedJson) {
  EXPECT_TRUE(starts(error(after_good("{\"input\": \"one\", \"target\": ")), "data.jsonl:2: malformed JSON"));
  EXPECT_TRUE(starts(error(after_good("{\"input\": \"one\"} x")), "data.jsonl:2: malformed JSON"));
  EXPECT_TRUE(has(error("input,target\none,two\n"), "malformed JSON: each line must be one JSON object"));
  EXPECT_TRUE(
      starts(error(after_good("{\"input\": \"one\", \"target\": \"a\\qb\"}")), "data.jsonl:2: malformed"));
}

TEST_F(BadRowsTest, LastLineIncomplete) {
  EXPECT_TRUE(
      starts(error(std::string(kGoodRow) + "{\"input\": \"one\", \"tar"), "data.jsonl:2: malformed JSON"));
}

TEST_F(BadRowsTest, LastLineThatWasCutOffIsNamedAsSuch) {
  for (const char* row : {"{\"input\": \"one\", \"tar", "{\"input\": \"one\", \"target\": tru",
                          "{\"input\": \"one\", \"target\": \"\\ud8", "{\"input\": [1, 2"}) {
    EXPECT_TRUE(has(error(std::string(kGoodRow) + row), "the file ends within this row: it was cut off"))
        << row;
    EXPECT_FALSE(has(error(after_good(row) + kGoodRow), "the file ends")) << row;
  }
  EXPECT_TRUE(has(error("[{\"input\": \"one\", \"tar"), "is the end of the file missing?"));
}

TEST_F(BadRowsTest, TheCauseOfMalformedJsonIsNamedWithItsColumn) {
  const auto with_target = [&](const std::string& value) {
    return error(after_good("{\"target\": " + value + ", \"input\": \"one\"}") + kGoodRow);
  };
  const std::vector<std::pair<const char*, const char*>> causes{
      {"NaN", "column 12: NaN is no value of JSON; write null"},
      {"-Infinity", "column 13: Infinity is no value of JSON; write a number or null"},
      {"None", "column 12: None is no value of JSON; write null"},
      {"True", "column 12: True is no value of JSON; write true"},
      {"two", "column 12: 'two' is not in double quotes"},
      {"'two'", "column 12: a single quote; JSON has texts and keys in double quotes"},
      {R"("a\ud83d")", "column 14: \\ud83d is half of a character (a surrogate without its pair)"},
      {R"("\udca9 b")", "column 13: \\udca9 is half of a character"},
      {R"("\ud83d\u0041")", "column 13: \\ud83d is half of a character"},
      {R"("a\x41")", "column 14: the escape \\x does not exist in JSON"},
      {R"("a\u00g1")", "column 14: \\u without four hexadecimal digits"},
      {"\"a\tb\"", "column 14: a text with a tab as it is; write \\t"},
      {"[1, ]", "column 14: a comma before a ]; remove it"},
      {"1} {", "column 15: there is more text after the end of the object"},
      {"1 /* no */", "column 14: a comment; JSON has none"}};
  for (const auto& [value, cause] : causes) {
    EXPECT_TRUE(starts(with_target(value), concat("data.jsonl:2: malformed JSON: ", cause))) << value;
  }
  EXPECT_TRUE(starts(error(after_good("{\"input\": \"one\"},") + kGoodRow),
                     "data.jsonl:2: malformed JSON: column 17: a comma after the end of the object"));
  EXPECT_TRUE(
      has(error("{\n  \"input\": \"one\",\n  \"target\": \"two\"\n}\n"), "each row must be on one line"));
  EXPECT_EQ(with_target(R"("\ud83d\ude00")"), "") << "a whole pair";
}

TEST_F(BadRowsTest, FilesThatAreNoTextAreNamed) {
  const std::vector<std::pair<std::string, const char*>> begins{
      {std::string("\x1f\x8b\x08\0", 4), "is compressed with gzip; let its name end in .gz"},
      {"\x28\xb5\x2f\xfd", "is compressed with zstd; let its name end in .zst"},
      {"PAR1", "is a Parquet file; let its name end in .parquet"},
      {"PK\x03\x04", "is a zip archive"},
      {"\xfd"
       "7zXZ",
       "is compressed with xz"},
      {"BZh91", "is compressed with bzip2"},
      {"ARROW1", "is an Arrow file"},
      {std::string("\xff\xff\xff\xff\xb8\x02\0\0", 8), "is an Arrow file"},
      {std::string("{\0\"\0i\0n\0", 8), "is UTF-16; save the file as UTF-8"},
      {std::string("\0{\0\"\0i\0n", 8), "is UTF-16; save the file as UTF-8"},
      {std::string("\xff\xfe\0\0{\0\0\0", 8), "is UTF-32; save the file as UTF-8"},
      {"version https://git-lfs.github.com/spec/v1\n", "is the pointer of Git LFS"},
      {"\n<!DOCTYPE html>", "is a page of HTML"}};
  for (const auto& [begin, what] : begins) {
    for (const char* name : {"rows.jsonl", "rows.json", "rows.csv"})
      EXPECT_TRUE(
          starts(error_of([&, &begin = begin] { open(write(name, begin)); }), concat(name, ": ", what)))
          << what;
  }
}

TEST_F(BadRowsTest, AnEndingThatPromisesACompressionIsNamed) {
  config_.data.cache = (folder_ / "cache").string();
  const auto refused = [&](const char* name, std::string_view content) {
    return error_of([&] { open(write(name, content)); });
  };
  EXPECT_EQ(
      refused("rows.jsonl.gz", kGoodRow),
      "rows.jsonl.gz: is not compressed with gzip, as its name says: it holds text; let its name end in "
      ".jsonl, .csv or .tsv");
  EXPECT_TRUE(
      starts(refused("rows.jsonl.zst", std::string("\x1f\x8b\x08\0", 4)),
             "rows.jsonl.zst: is not compressed with zstd, as its name says: it is compressed with gzip"));
}

TEST_F(BadRowsTest, NotAnObject) {
  EXPECT_TRUE(starts(error(after_good("\"one\"")), "data.jsonl:2: is not a JSON object"));
  EXPECT_TRUE(starts(error(after_good("17")), "data.jsonl:2: is not a JSON object"));
}

TEST_F(BadRowsTest, InvalidUtf8) {
  EXPECT_TRUE(starts(error(after_good("{\"input\": \"one\", \"target\": \"\xff\xfe\"}")),
                     "data.jsonl:2: invalid UTF-8"));
}

TEST_F(BadRowsTest, Utf16) {
  for (const std::string& content : {std::string("\xff\xfe{\0\"\0", 6), std::string("\xfe\xff\0{\0\"", 6)})
    EXPECT_EQ(error(content), "data.jsonl: is UTF-16; save the file as UTF-8");
}

TEST_F(BadRowsTest, MissingFieldIsNamedWithWhatTheRowHas) {
  EXPECT_EQ(error(after_good("{\"input\": \"one\", \"targets\": \"two\"}")),
            "data.jsonl:2: field \"target\" is missing (the row has \"input\", \"targets\"; did you mean "
            "\"targets\"?)");
  EXPECT_TRUE(has(error(after_good("{}")), "the row has no fields"));
}

TEST_F(BadRowsTest, ConfiguredFieldThatNoRowHas) {
  config_.data.input = "german";
  config_.data.target = "english";
  EXPECT_TRUE(has(error("{\"germann\": \"one\", \"english\": \"two\"}"), "did you mean \"germann\"?"));
}

TEST_F(BadRowsTest, ValuesThatAreNotText) {
  const auto with_target = [&](const std::string& value) {
    return error(after_good("{\"input\": \"one\", \"target\": " + value + "}"));
  };
  EXPECT_EQ(with_target("12"),
            "data.jsonl:2: field \"target\" is a number, not text; write it as a string, in quotes");
  EXPECT_TRUE(has(with_target("1.5"), "is a number, not text"));
  EXPECT_TRUE(has(with_target("true"), "is true or false, not text"));
  EXPECT_TRUE(has(with_target("null"), "is null, not text"));
  EXPECT_TRUE(
      has(with_target("{\"a\": 1}"), "is an object, not text; write it as a string (in Python: json.dumps)"));
  EXPECT_TRUE(has(with_target("[1]"), "is an array, not text; write it as a string (in Python: json.dumps)"));
}

TEST_F(BadRowsTest, SeveralAreReportedTogether) {
  std::string content;
  for (int i = 0; i < 1000; i++) content += i >= 700 && i % 100 == 0 ? "{}\n" : kGoodRow;
  for (int workers : {1, 4}) {
    config_.training.num_workers = workers;
    EXPECT_EQ(error(content),
              "3 of 1,000 rows cannot be used (data.bad_rows: skip leaves them out):\n"
              "  data.jsonl:701, :801, :901: field \"input\" is missing (the row has no fields)");
  }
}

TEST_F(BadRowsTest, OnlyTheFirstFiveAreShown) {
  std::string content = kGoodRow;
  for (int i = 0; i < 2000; i++) content += "{\"input\": 1, \"target\": \"\"}\n";
  for (int workers : {1, 4}) {
    config_.training.num_workers = workers;
    const std::string message = error(content);
    EXPECT_TRUE(starts(message,
                       "2,000 of 2,001 rows cannot be used (data.bad_rows: skip leaves them out):\n"
                       "  data.jsonl:2, :3, :4, :5, :6: "));
    EXPECT_FALSE(has(message, ":7"));
    EXPECT_TRUE(ends(message, "\n  and 1,995 more"));
  }
}

TEST_F(BadRowsTest, EveryRowMalformed) {
  EXPECT_TRUE(starts(error("{\n{\n"), "2 of 2 rows cannot be used:\n  data.jsonl:1, :2: malformed JSON"));
}

TEST_F(BadRowsTest, TheFileOfTheBadRowIsNamed) {
  const std::string first = write("first.jsonl", kGoodRow), second = write("second.jsonl", after_good("{"));
  const std::string message = error_of([&] { Dataset::open({first, second}, config_, t5_, true); });
  EXPECT_TRUE(starts(message, "second.jsonl:2: malformed JSON"));
}

TEST_F(BadRowsTest, ArraysThatAreDamaged) {
  EXPECT_TRUE(
      has(error("[\n{\"input\": \"one\", \"target\": \"two\"},"), "data.jsonl:1: malformed JSON: the array"));
  EXPECT_TRUE(has(error("[{\"input\": \"one\", \"target\": \"two"), "is not closed"));
  EXPECT_TRUE(starts(error("[\n{\"input\": \"one\", \"target\": \"two\"},\n]"),
                     "data.jsonl:3: malformed JSON: an element"));
  EXPECT_TRUE(starts(error("[{}]\n[{}]"), "data.jsonl:2: malformed JSON: there is more text"));
  EXPECT_TRUE(starts(error("[\n{\"input\": \"one\", \"target\": \"two\"},\n5]"),
                     "data.jsonl:3: is not a JSON object"));
}

TEST_F(BadRowsTest, UnknownFieldNames) {
  const std::string message = error("{\"de\": \"one\", \"en\": \"two\"}");
  EXPECT_EQ(message,
            "data.jsonl:1: no known pair of input and target among the fields de, en; set data.input and "
            "data.target "
            "to field names or templates like \"Translate: {de}\"");
  EXPECT_TRUE(has(error("{\"body\": \"one\"}", false), "data.kind to text"));
}

TEST_F(BadRowsTest, PlainTextOnAnEncoderDecoder) {
  EXPECT_TRUE(has(error("{\"text\": \"one\"}"), "give rows with input and target fields"));
  config_.data.kind = DataKind::text;
  EXPECT_TRUE(starts(error<ConfigError>("{\"text\": \"one\"}"), "data.kind: kind text has no target"));
}

TEST_F(BadRowsTest, TextWithATarget) {
  config_.data.kind = DataKind::text;
  config_.data.target = "b";
  EXPECT_TRUE(
      starts(error<ConfigError>("{\"text\": \"one\"}", false), "data.target: kind text has no target"));
}

TEST_F(BadRowsTest, TemplatesThatAreWrong) {
  config_.data.target = "target";
  const auto with_input = [&](const std::string& text) {
    config_.data.input = text;
    return error<ConfigError>(kGoodRow);
  };
  EXPECT_EQ(with_input("a {input"),
            "data.input: \"a {input\": a { is not closed (a literal one is written {{)");
  EXPECT_TRUE(has(with_input("a input}"), "a } without a { before it"));
  EXPECT_TRUE(has(with_input("a {}"), "no field name"));
  EXPECT_TRUE(has(with_input("a {{b}}"), "has no {field}"));
}

TEST_F(BadRowsTest, NothingToLearnAnywhere) {
  config_.data.max_length = 3;
  EXPECT_EQ(
      error("{\"prompt\": \"one two three\", \"completion\": \"four\"}\n{\"prompt\": \"one two\", "
            "\"completion\": \"four\"}",
            false),
      "data.jsonl:1: no trainable tokens in any of the 2 samples: every prompt fills data.max_length (3) "
      "alone; raise it");
}

TEST_F(BadRowsTest, FileThatChangedAfterOpening) {
  const std::string path = write("data.jsonl", kGoodRow);
  const Dataset data = open(path);
  std::ofstream(path, std::ios::in | std::ios::out) << "x";
  EXPECT_TRUE(has(error_of([&] { data.sample(0); }), "the file has changed since it was opened"));
}

}  // namespace
}  // namespace trainer
