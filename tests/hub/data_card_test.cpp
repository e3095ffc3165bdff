// What README.md of a data set says about its files. The cards have the forms of the hub's documentation.
#include "hub/data_card.h"

#include <chrono>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "hub/choose_files.h"
#include "support/error_message.h"

namespace trainer::hub {
namespace {

using test::contains;
using Files = std::vector<std::string>;

std::string card_with(const std::string& configs) {
  return "---\nlicense: mit\nconfigs:\n" + configs + "tags: [chat]\n---\n# Rows\n";
}

Files chosen_with(const std::string& card, const Files& files, Split split, const std::string& path = "") {
  Listing listing;
  for (const std::string& file : files) listing.files.emplace_back().path = CheckedName::path(file).value();
  Files chosen;
  for (const RemoteFile& file :
       choose_data_files({Kind::dataset, "a/b", "", path}, listing, split, read_subsets(card)))
    chosen.push_back(file.path.text());
  return chosen;
}

std::string problem_with(const std::string& card, const Files& files, Split split,
                         const std::string& path = "") {
  return test::error_message<DataError>([&] { chosen_with(card, files, split, path); });
}

const Files kMath{"README.md", "main/train-00000-of-00001.parquet", "main/test-00000-of-00001.parquet",
                  "socratic/train-00000-of-00001.parquet", "socratic/test-00000-of-00001.parquet"};
const std::string kMathCard = card_with(R"(
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - split: train
    path: socratic/train-*
  - split: test
    path: socratic/test-*
)");

TEST(DataCard, SaysWhichFilesAreASplit) {
  const std::string card = card_with(
      "- config_name: default\n  data_files:\n  - split: train\n    path: [\"one.csv\", \"more/*.csv\"]\n"
      "  - split: test\n    path: \"two.csv\"\n");
  const Files files{"more/a.csv", "more/b/c.csv", "one.csv", "three.csv", "two.csv"};
  EXPECT_EQ(chosen_with(card, files, Split::train), (Files{"more/a.csv", "one.csv"}));
  EXPECT_EQ(chosen_with(card, files, Split::eval), Files{"two.csv"});
  EXPECT_EQ(chosen_with(card, files, Split::any), files);
}

TEST(DataCard, FilesWithoutASplitAreForTraining) {
  for (const char* data_files :
       {"rows/*.jsonl", "[rows/a.jsonl]", "{train: ./rows/a.jsonl, test: b.jsonl}"}) {
    const std::string card = card_with(concat("- config_name: rows\n  data_files: ", data_files, "\n"));
    EXPECT_EQ(chosen_with(card, {"rows/a.jsonl", "b.jsonl"}, Split::train), Files{"rows/a.jsonl"}) << card;
  }
}

TEST(DataCard, AsksWhichOfSeveralSubsetsIsMeant) {
  const std::string problem = problem_with(kMathCard, kMath, Split::train);
  EXPECT_TRUE(contains(problem, "several subsets; give one or some of\n  a/b/main\n  a/b/socratic"))
      << problem;
  EXPECT_EQ(chosen_with(kMathCard, kMath, Split::train, "socratic"), Files{kMath[3]});
  EXPECT_EQ(chosen_with(kMathCard, kMath, Split::eval, "main"), Files{kMath[2]});
  EXPECT_EQ(chosen_with(kMathCard, kMath, Split::any).size(), 4u);
}

TEST(DataCard, TheDefaultSubsetIsTaken) {
  for (const char* name : {"default", "small\n  default: true"}) {
    const std::string card =
        card_with(concat("- config_name: large\n  data_files: large.jsonl\n- config_name: ", name,
                         "\n  data_files: small.jsonl\n"));
    EXPECT_EQ(chosen_with(card, {"large.jsonl", "small.jsonl"}, Split::train), Files{"small.jsonl"});
    EXPECT_EQ(chosen_with(card, {"large.jsonl", "small.jsonl"}, Split::train, "large"), Files{"large.jsonl"});
  }
}

TEST(DataCard, OfSeveralSplitsTheOneNamedSoIsTaken) {
  const Files files{"data/test_sft-0.parquet", "data/train_gen-0.parquet", "data/train_sft-0.parquet"};
  const std::string sft = "  - split: train_sft\n    path: data/train_sft-*\n",
                    gen = "  - split: train_gen\n    path: data/train_gen-*\n",
                    head = "- config_name: default\n  data_files:\n";
  EXPECT_EQ(chosen_with(card_with(head + sft), files, Split::train), Files{files[2]});
  const std::string problem = problem_with(card_with(head + sft + gen), files, Split::train);
  EXPECT_TRUE(contains(problem, "several splits of training data, train_sft, train_gen")) << problem;
  EXPECT_TRUE(contains(problem, "a/b/data/train_sft-*")) << problem;
  const std::string train = "  - split: train\n    path: data/train_gen-*\n";
  EXPECT_EQ(chosen_with(card_with(head + sft + train), files, Split::train), Files{files[1]});
  EXPECT_TRUE(contains(problem_with(card_with(head + sft), files, Split::eval),
                       "no validation or test data: its splits are train_sft"));
}

TEST(DataCard, AFolderHoldsTheFilesOfASubset) {
  const Files files{"de/test.csv", "de/train.csv", "en/train.csv"};
  const std::string names =
      card_with("- config_name: de\n  data_dir: de\n- config_name: en\n  data_dir: en\n");
  EXPECT_EQ(chosen_with(names, files, Split::train, "de"), Files{"de/train.csv"});
  EXPECT_EQ(chosen_with(names, files, Split::eval, "de"), Files{"de/test.csv"});
  const std::string patterns = card_with("- config_name: de\n  data_dir: ./de/\n  data_files: \"t*.csv\"\n");
  EXPECT_EQ(chosen_with(patterns, files, Split::train), (Files{"de/test.csv", "de/train.csv"}));
}

TEST(DataCard, TwoStarsAreAnyFolders) {
  const Files files{"data/a/b/one.jsonl", "data/two.jsonl", "three.jsonl"};
  EXPECT_EQ(chosen_with(card_with("- data_files: data/**/*.jsonl\n"), files, Split::train),
            (Files{files[0], files[1]}));
  EXPECT_EQ(chosen_with(card_with("- data_files: \"**/*.jsonl\"\n"), files, Split::train), files);
  EXPECT_EQ(chosen_with("", files, Split::any, "data/**"), (Files{files[0], files[1]}));
}

TEST(DataCard, ACardMayNameEachOfManyFiles) {
  std::string paths;
  Files files;
  for (int i = 0; i < 20'000; i++) {
    files.push_back(concat("part-", i, ".jsonl"));
    paths += concat("  - ", files.back(), "\n");
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(chosen_with(card_with("- data_files:\n" + paths), files, Split::train).size(), files.size());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(DataCard, FilesThatAreNotThereOrNotReadAreNamed) {
  const std::string card = card_with("- data_files: rows-*\n");
  EXPECT_TRUE(contains(problem_with(card, {"train.jsonl"}, Split::train),
                       "its README.md says that train is rows-*, and no file is named so"));
  EXPECT_TRUE(contains(problem_with(card, {"rows-0.arrow", "train.jsonl"}, Split::train),
                       "rows-0.arrow is not read"));
}

TEST(DataCard, APathInTheRepositoryCountsMore) {
  EXPECT_EQ(chosen_with(kMathCard, kMath, Split::train, kMath[4]), Files{kMath[4]});
  EXPECT_EQ(chosen_with(kMathCard, kMath, Split::train, "main/t*"), (Files{kMath[1], kMath[2]}));
}

TEST(DataCard, ACardThatSaysNothingOfFilesChangesNothing) {
  for (const char* card : {"", "# Rows\n", "---\nlicense: mit\n---\n", "---\nconfigs: all\n---\n",
                           "---\n- configs\n---\n", "---\nconfigs: [1, {}]\n---\n", "---\nnever closed: [\n"})
    EXPECT_EQ(chosen_with(card, {"test.jsonl", "train.jsonl"}, Split::train), Files{"train.jsonl"}) << card;
}

TEST(DataCard, FrontMatterThatIsNoYamlIsAnError) {
  EXPECT_TRUE(contains(test::error_message<DataError>([] { read_subsets("---\nconfigs: [\n---\n"); }),
                       "not YAML (line "));
}

}  // namespace
}  // namespace trainer::hub
