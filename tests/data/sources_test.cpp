// Where rows come from: tables, compressed files, patterns, folders, weighted sets, held-out rows.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "trainer/base/files.h"
#include "trainer/data/batching.h"

#include "data/fixture.h"

namespace trainer {
namespace {

class Sources : public DataTest {
 protected:
  Sources() { config_.data.cache = (folder_ / "cache").string(); }

  static std::vector<std::string> inputs(const Dataset& data) {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < data.size(); i++) texts.push_back(data.texts(i).input);
    return texts;
  }
  Dataset open_all(const std::vector<DataSource>& sources) const {
    return Dataset::open(sources, config_, t5_, true);
  }
  static std::string row(int input) { return concat("{\"input\": \"", input, "\", \"target\": \"one\"}\n"); }
  static std::string rows(int begin, int end) {
    std::string text;
    for (int i = begin; i < end; i++) text += row(i);
    return text;
  }
};

using Texts = std::vector<std::string>;

// ---- tables

TEST_F(Sources, TablesAreReadAsPythonsCsvReadsThem) {
  const Dataset data = open(write("a.csv",
                                  "\xef\xbb\xbfinput,target,more\r\n"
                                  "one,two,x\r\n"
                                  "\"a, \"\"b\"\"\nc\",\"\",\"\"\r\n"
                                  "\r\n"
                                  " 5\" pipe ,four,"));
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.texts(0).input, "one");
  EXPECT_EQ(data.texts(1).input, "a, \"b\"\nc");
  EXPECT_EQ(data.texts(1).target, "");
  EXPECT_EQ(data.texts(2).input, " 5\" pipe ");
  EXPECT_TRUE(ends(data.origin(1), "a.csv:3"));
  EXPECT_TRUE(ends(data.origin(2), "a.csv:6"));
}

TEST_F(Sources, TabsSeparateTsv) {
  const Dataset data = open(write("a.tsv", "input\ttarget\none, two\t\"three\tfour\"\n"));
  EXPECT_EQ(data.texts(0).input, "one, two");
  EXPECT_EQ(data.texts(0).target, "three\tfour");
}

TEST_F(Sources, TheFirstLineShowsWhatSeparatesTheColumns) {
  const auto inputs_of = [&](const char* name, const char* text) { return inputs(open(write(name, text))); };
  EXPECT_EQ(inputs_of("semicolons.csv", "input;target\n1,5 kg;two\n\"a;b\";one\n"), (Texts{"1,5 kg", "a;b"}));
  EXPECT_EQ(inputs_of("tabs.csv", "input\ttarget\na, b; c\ttwo\n"), Texts{"a, b; c"});
  EXPECT_EQ(inputs_of("commas.tsv", "input,target\na\tb,two\n"), Texts{"a\tb"});
  EXPECT_EQ(inputs_of("quoted.csv", "input,\"target\",\"a;b;c\"\none,two,x\n"), Texts{"one"});
  // As Excel writes it.
  const Dataset data = open(write("excel.csv", "sep=;\r\ninput;target\r\none;two\r\n"));
  EXPECT_EQ(data.texts(0).target, "two");
  EXPECT_TRUE(ends(data.origin(0), "excel.csv:3"));
}

TEST_F(Sources, TablesThatAreDamaged) {
  const auto with = [&](const std::string& text) {
    return error_of([&] { open(write("a.csv", "input,target\none,two\n" + text)); });
  };
  EXPECT_EQ(with("one\n"), "a.csv:3: has 1 fields, and the header names 2");
  EXPECT_EQ(with("one,two,three\n"), "a.csv:3: has 3 fields, and the header names 2");
  EXPECT_EQ(with("\"one,two\nthree\n"), "a.csv:3: a quote is not closed up to the end of the file");
  EXPECT_EQ(with("\"one\" more,two\n"),
            "a.csv:3: there is text behind a closing quote; a quote within a field is written twice");
  EXPECT_TRUE(starts(with("\xff,two\n"), "a.csv:3: invalid UTF-8"));
  EXPECT_TRUE(starts(with(std::string("one\0,two\n", 9)), "a.csv:3: holds a NUL byte"));
  EXPECT_TRUE(has(error_of([&] { open(write("b.csv", "input,target\n")); }), "no rows below its header"));
  EXPECT_TRUE(has(error_of([&] { open(write("c.csv", "")); }), "the file is empty"));
  EXPECT_TRUE(has(error_of([&] { open(write("d.csv", "a,a\n1,2\n")); }), "two columns are called \"a\""));
  EXPECT_TRUE(has(error_of([&] { open(write("e.csv", "input,targets\none,two\n")); }), "input, targets"));
}

// ---- compressed files

std::string bytes(const std::string& digits) {
  std::string text;
  for (size_t i = 0; i < digits.size(); i += 2)
    text += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return text;
}

// {"input": "one", "target": "two"}, {"input": "three", "target": "four"}, made by gzip and zstd.
const std::string kGzip = bytes(
    "1f8b0800000000000203ab56cacc2b282d51b25250cacf4b55d251502a492c4a4f050b9494e72bd572552354946414a5a2a949cb"
    "2f2d"
    "022a020086c457b647000000");
const std::string kZstd = bytes(
    "28b52ffd0458a5010084027b22696e707574223a20226f6e65222c2022746172676574776f227d0a74687265666f7572227d0a03"
    "0047"
    "7552949574cd264e4487c1");

TEST_F(Sources, CompressedFilesAreUnpackedOnce) {
  for (const auto& [name, packed] : {std::pair("a.jsonl.gz", kGzip), {"a.jsonl.zst", kZstd}}) {
    const std::string path = write(name, packed);
    const Dataset data = open(path);
    EXPECT_EQ(inputs(data), (Texts{"one", "three"}));
    EXPECT_EQ(data.origin(1), path + ":2");  // where the user finds it
    const auto unpacked = folder_ / "cache/unpacked";
    const auto made = std::filesystem::directory_iterator(unpacked)->path();
    const auto when = std::filesystem::last_write_time(made);
    EXPECT_EQ(inputs(open(path)), (Texts{"one", "three"}));
    EXPECT_EQ(std::filesystem::last_write_time(made), when);
    // Another file may have the same name.
    write(name, packed + packed);
    EXPECT_EQ(inputs(open(path)), (Texts{"one", "three", "one", "three"}));
    std::filesystem::remove_all(unpacked);
  }
}

TEST_F(Sources, AnUnpackedFileThatChangedIsUnpackedAgain) {
  const std::string path = write("a.jsonl.gz", kGzip);
  EXPECT_EQ(inputs(open(path)), (Texts{"one", "three"}));
  const auto unpacked = folder_ / "cache/unpacked";
  const std::filesystem::path made = std::filesystem::directory_iterator(unpacked)->path();
  const std::string whole = read_file(made);
  std::string changed = whole;
  changed.replace(whole.find("one"), 3, "six");
  const std::string cut = whole.substr(0, whole.find('\n') + 1);
  for (const std::string& damaged : {changed, cut, std::string()}) {
    const auto when = std::filesystem::last_write_time(made);
    std::ofstream(made, std::ios::binary) << damaged;
    std::filesystem::last_write_time(made, when);
    EXPECT_EQ(inputs(open(path)), (Texts{"one", "three"}));
    EXPECT_EQ(read_file(made), whole);
  }
  // A file of an earlier version, without a checksum.
  std::filesystem::remove_all(folder_ / "cache/checksums");
  EXPECT_EQ(inputs(open(path)), (Texts{"one", "three"}));
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "cache/checksums"));
}

TEST_F(Sources, ZerosAfterGzipMembersAreIgnored) {
  const std::string zeros(3000, '\0');
  EXPECT_EQ(inputs(open(write("a.jsonl.gz", kGzip + zeros))), (Texts{"one", "three"}));
  EXPECT_EQ(inputs(open(write("a.jsonl.gz", kGzip + zeros + kGzip))),
            (Texts{"one", "three", "one", "three"}));
  EXPECT_TRUE(
      starts(error_of([&] { open(write("a.jsonl.gz", kGzip + zeros + "x")); }), "a.jsonl.gz: is damaged"));
}

TEST_F(Sources, DamagedCompressedFilesLeaveNothingBehind) {
  for (const auto& [name, packed] : {std::pair("a.jsonl.gz", kGzip), {"a.jsonl.zst", kZstd}}) {
    const auto with = [&, file = name](const std::string& content) {
      return error_of([&] { open(write(file, content)); });
    };
    EXPECT_TRUE(starts(with(packed.substr(0, packed.size() - 5)), concat(name, ": is damaged")));
    EXPECT_TRUE(starts(with(packed.substr(0, 20)), concat(name, ": is damaged")));
    EXPECT_TRUE(has(with(packed.substr(0, 2)), "it ends too early; copy or download it again"));
    EXPECT_TRUE(starts(with(""), concat(name, ": is empty, not even compressed with ")));
    EXPECT_TRUE(starts(with("{\"input\": \"one\"}\n"), concat(name, ": is not compressed with ")));
    std::string changed = packed;
    changed[30] ^= 4;
    EXPECT_TRUE(starts(with(changed), concat(name, ": is damaged")));
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "cache/unpacked"));
  }
}

TEST_F(Sources, FilesThatWereCompressedTwiceAreNamed) {
  for (const auto& [name, packed] :
       {std::pair("a.jsonl.gz",
                  bytes("1f8b080000000000020393efe660000126e6d561a7ce686be8066e0a02000b6ca38114000000")),
        {"a.jsonl.zst", bytes("28b52ffd0458a100001f8b0800000000000203ab56cacc2b282d51b252a7a64ac4")}}) {
    EXPECT_EQ(error_of([&, file = name, content = packed] { open(write(file, content)); }),
              concat(name, ": is compressed twice; unpack it once (gzip -d, or zstd -d)"));
  }
}

TEST_F(Sources, ACacheThatCannotBeWrittenSaysWhatToDo) {
  config_.data.cache = write("file", "");
  const std::string message = error_of([&] { open(write("a.jsonl.gz", kGzip)); });
  EXPECT_TRUE(starts(message, "a.jsonl.gz: cannot be unpacked: "));
  EXPECT_TRUE(has(message, "set data.cache"));
}

// ---- patterns and folders

TEST_F(Sources, PatternsAndFoldersAreSorted) {
  std::filesystem::create_directories(folder_ / "set/deep/.hidden");
  for (const auto& [name, number] : {std::pair("b.jsonl", 12), {"a.jsonl", 11}, {"deep/c.json", 13}})
    write(concat("set/", name), row(number));
  write("set/d.csv", "input,target\n14,one\n");
  write("set/notes.txt", "no data");
  write("set/.e.jsonl", "no data");
  write("set/deep/.hidden/f.jsonl", "no data");
  EXPECT_EQ(inputs(open((folder_ / "set").string())), (Texts{"11", "12", "14", "13"}));
  EXPECT_EQ(inputs(open((folder_ / "set/*.jsonl").string())), (Texts{"11", "12"}));
  EXPECT_EQ(inputs(open((folder_ / "set/[b]*").string())), (Texts{"12"}));
  write("set/x[b].jsonl", row(15));  // the name of an existing file is not a pattern
  EXPECT_EQ(inputs(open((folder_ / "set/x[b].jsonl").string())), (Texts{"15"}));
  EXPECT_TRUE(has(error_of([&] { open((folder_ / "set/*.tsv").string()); }), "the pattern matches no file"));
  EXPECT_TRUE(has(error_of([&] { open((folder_ / "set/deep/.hidden").string()); }), "malformed"));
}

// ---- weights

std::map<int64_t, int> counts(const SampleOrder& order, int64_t epoch) {
  std::map<int64_t, int> times;
  for (int64_t i = 0; i < order.epoch_size(); i++) times[order.index_at(epoch * order.epoch_size() + i)]++;
  return times;
}

TEST_F(Sources, AWeightSaysHowOftenASampleOccursInAnEpoch) {
  const Dataset data = open_all({{write("a.jsonl", rows(10, 20)), 2},
                                 {write("b.jsonl", rows(20, 30)), 0.5},
                                 {write("c.jsonl", rows(30, 34)), 1.75}});
  EXPECT_EQ(data.size(), 24);
  for (const bool shuffle : {true, false}) {
    const SampleOrder order(data.sets(), shuffle, 7);
    ASSERT_EQ(order.epoch_size(), 20 + 5 + 7);
    std::map<int64_t, int> all;
    for (int64_t epoch = 0; epoch < 4; epoch++) {
      const auto times = counts(order, epoch);
      for (int64_t i = 0; i < 10; i++) EXPECT_EQ(times.at(i), 2);
      int of_b = 0;
      for (const auto& [index, n] : times) {
        EXPECT_LE(n, 2);
        if (index >= 10 && index < 20) of_b += n;
        all[index] += n;
      }
      EXPECT_EQ(of_b, 5);
    }
    // No sample comes a second time before all samples of its set came once.
    for (int64_t i = 10; i < 20; i++) EXPECT_EQ(all[i], 2);
    for (int64_t i = 20; i < 24; i++) EXPECT_EQ(all[i], 7);
  }
}

TEST_F(Sources, WeightsOfOneChangeNothing) {
  const SampleOrder one(30, true, 3), sets({{10, 1}, {20, 1}}, true, 3);
  for (int64_t i = 0; i < 90; i++) EXPECT_EQ(one.index_at(i), sets.index_at(i));
}

// ---- held out

class HeldOut : public Sources {
 protected:
  std::pair<Texts, Texts> sides(const std::string& path, double share) {
    config_.data.train = {path};
    config_.data.eval.held_out = share;
    return {inputs(Dataset::open_train(config_, t5_, true)), inputs(Dataset::open_eval(config_, t5_, true))};
  }
};

TEST_F(HeldOut, IsTheGivenShareAndNotTrainedOn) {
  const auto [train, eval] = sides(write("a.jsonl", rows(10, 2010)), 0.1);
  EXPECT_EQ(train.size() + eval.size(), 2000u);
  EXPECT_NEAR(static_cast<double>(eval.size()), 200, 50);
  const std::set<std::string> trained(train.begin(), train.end());
  for (const std::string& text : eval) EXPECT_FALSE(trained.contains(text));
}

TEST_F(HeldOut, StaysWhenDataAreAddedAndWhenTheTemplateChanges) {
  const auto [train, eval] = sides(write("a.jsonl", rows(10, 300)), 0.2);
  const auto [more_train, more_eval] = sides(write("a.jsonl", rows(300, 600) + rows(10, 300)), 0.2);
  EXPECT_EQ(Texts(more_eval.end() - std::ssize(eval), more_eval.end()), eval);
  config_.data.input = "Say: {input}";
  config_.data.target = "target";
  const auto [said_train, said_eval] = sides(write("a.jsonl", rows(10, 300)), 0.2);
  ASSERT_EQ(said_eval.size(), eval.size());
  for (size_t i = 0; i < eval.size(); i++) EXPECT_EQ(said_eval[i], "Say: " + eval[i]);
}

TEST_F(HeldOut, EqualRowsAreOnOneSide) {
  std::string content = rows(10, 300);
  for (int i = 10; i < 300; i++)
    content += concat("{\"id\": ", i, ", \"target\":\"one\",  \"input\": \"", i, "\"}\n");
  const auto [train, eval] = sides(write("a.jsonl", content), 0.3);
  EXPECT_GT(eval.size(), 0u);
  for (const std::string& text : eval) EXPECT_EQ(std::ranges::count(eval, text), 2) << text;
}

TEST_F(HeldOut, AShareWithoutRowsIsAnError) {
  EXPECT_EQ(error_of([&] { sides(write("a.jsonl", row(10)), 1e-9); }),
            "data.eval: 1e-09 held out of a.jsonl selects no rows; choose a larger share");
  EXPECT_EQ(error_of([&] { sides(write("a.jsonl", row(10)), 0.999999); }),
            "data.eval: holding out 0.999999 of a.jsonl leaves no rows to train on; choose a smaller share");
}

// ---- a part of the data

TEST_F(Sources, MaxSamplesTakesTheFirstOfEachEntry) {
  config_.data.max_samples = 3;
  const std::string a = write("a.jsonl", rows(10, 20)), b = write("b.jsonl", rows(20, 22)),
                    c = write("c.jsonl", rows(30, 40));
  EXPECT_EQ(inputs(open_all({a, b})), (Texts{"10", "11", "12", "20", "21"}));
  EXPECT_EQ(inputs(open_all({(folder_ / "[bc].jsonl").string()})), (Texts{"20", "21", "30"}));
  EXPECT_EQ(open_all({a}).report().samples, 3);
}

}  // namespace
}  // namespace trainer
