#include "hub/choose_files.h"

#include <chrono>
#include <set>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "support/error_message.h"

namespace trainer::hub {
namespace {

using test::contains;
using test::error_message;
using Paths = std::vector<std::string>;

Listing listing_of(const Paths& paths) {
  Listing listing;
  for (const std::string& path : paths) listing.files.emplace_back().path = CheckedName::path(path).value();
  return listing;
}

Paths paths_of(const std::vector<RemoteFile>& files) {
  Paths paths;
  for (const RemoteFile& file : files) paths.push_back(file.path.text());
  return paths;
}

Paths model_files(const Paths& paths, ModelParts parts = ModelParts::all) {
  return paths_of(choose_model_files(listing_of(paths), parts, "").files);
}

Name data_set(const std::string& path = "") { return {Kind::dataset, "a/b", "", path}; }

Paths data_files(const Paths& paths, Split split, const std::string& path = "") {
  return paths_of(choose_data_files(data_set(path), listing_of(paths), split));
}

std::string data_problem(const Paths& paths, Split split, const std::string& path = "") {
  return error_message<DataError>([&] { data_files(paths, split, path); });
}

TEST(ChooseModelFiles, TakesShardsOnlyWithoutASingleFile) {
  const Paths shards{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                     "model.safetensors.index.json"};
  Paths all{"config.json", "consolidated.safetensors", "pytorch_model.bin", "original/params.json"};
  all.insert(all.end(), shards.begin(), shards.end());
  EXPECT_EQ(model_files(all), (Paths{"config.json", shards[0], shards[1], shards[2]}));
  all.emplace_back("model.safetensors");
  EXPECT_EQ(model_files(all), (Paths{"config.json", "model.safetensors"}));
}

TEST(ChooseModelFiles, TakesWhatTheCommandNeeds) {
  const Paths all{"model.safetensors", "tokenizer.json", "config.json", "spiece.model"};
  EXPECT_EQ(model_files(all, ModelParts::config), Paths{"config.json"});
  EXPECT_EQ(model_files(all, ModelParts::tokenizer),
            (Paths{"tokenizer.json", "config.json", "spiece.model"}));
  EXPECT_EQ(model_files(all).back(), "model.safetensors");
  EXPECT_EQ(model_files({"adapter_model.safetensors", "adapter_config.json"}),
            (Paths{"adapter_config.json", "adapter_model.safetensors"}));
}

TEST(ChooseModelFiles, TheIndexSaysWhichFilesHaveTheWeights) {
  const std::string index =
      R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "c": "x.safetensors"}})";
  const auto chosen = choose_model_files(listing_of({"config.json", "model.safetensors.index.json",
                                                     "model-00001-of-00001.safetensors", "x.safetensors"}),
                                         ModelParts::all, index);
  EXPECT_EQ(paths_of(chosen.files), (Paths{"config.json", "model.safetensors.index.json", "x.safetensors"}));
  EXPECT_EQ(chosen.missing, Paths{"y.safetensors"});
  const auto single =
      choose_model_files(listing_of({"config.json", "model.safetensors"}), ModelParts::all, index);
  EXPECT_TRUE(single.missing.empty());
}

TEST(ChooseModelFiles, AnIndexNamesOnlyFilesBesideIt) {
  for (const char* file : {R"("../x.safetensors")", R"("/x.safetensors")", R"("a/x.safetensors")", R"("")",
                           "7", R"("x\u0000")", R"("..")"}) {
    const std::string index = concat(R"({"weight_map": {"a": )", file, "}}");
    const auto name = [&] { files_in_index(index); };
    EXPECT_TRUE(contains(error_message<FormatError>(name), "is not a file name")) << index;
  }
  for (const char* index : {"", "[]", "{}", R"({"weight_map": {}})", "{"})
    EXPECT_TRUE(contains(error_message<FormatError>([&] { files_in_index(index); }), "has no weight_map"));
}

TEST(ChooseModelFiles, ShardsAreNoWeightsWithoutTheirIndex) {
  const auto have = [](const Paths& paths) { return have_weights(listing_of(paths).files); };
  EXPECT_FALSE(have({"config.json"}));
  EXPECT_FALSE(have({"model-00001-of-00001.safetensors"}));
  EXPECT_TRUE(have({"model-00001-of-00001.safetensors", "model.safetensors.index.json"}));
  EXPECT_TRUE(have({"model.safetensors"}));
  EXPECT_TRUE(have({"adapter_model.safetensors"}));
}

TEST(ChooseModelFiles, KnowsWhenAllIsThere) {
  const auto complete = [](const std::set<std::string>& files, ModelParts parts,
                           const std::string& index = "") {
    return is_complete_model([&](const std::string& file) { return files.contains(file); }, index, parts);
  };
  EXPECT_TRUE(complete({"config.json"}, ModelParts::config));
  EXPECT_FALSE(complete({"config.json"}, ModelParts::tokenizer));
  EXPECT_FALSE(complete({"config.json", "tokenizer.json"}, ModelParts::all));
  EXPECT_TRUE(complete({"config.json", "tokenizer.json", "model.safetensors"}, ModelParts::all));
  EXPECT_TRUE(complete({"adapter_config.json", "adapter_model.safetensors"}, ModelParts::all));
  const std::string index = R"({"weight_map": {"a": "m1.safetensors", "b": "m2.safetensors"}})";
  EXPECT_FALSE(complete({"config.json", "tokenizer.json", "m1.safetensors"}, ModelParts::all, index));
  EXPECT_TRUE(complete({"config.json", "tokenizer.json", "m1.safetensors", "m2.safetensors"}, ModelParts::all,
                       index));
}

TEST(ChooseDataFiles, TakesTheSplitThatIsMeant) {
  const Paths all{"data/train-00000-of-00002-0123456789abcdef.parquet",
                  "data/train-00001-of-00002-0123456789abcdef.parquet",
                  "data/test-00000-of-00001.parquet",
                  "data/validation-00000-of-00001.parquet",
                  "README.md",
                  "dataset_infos.json"};
  EXPECT_EQ(data_files(all, Split::train), (Paths{all[0], all[1]}));
  EXPECT_EQ(data_files(all, Split::eval), Paths{all[3]});
  EXPECT_EQ(data_files(all, Split::any).size(), 4u);
  EXPECT_EQ(data_files({"train.jsonl", "test.jsonl"}, Split::eval), Paths{"test.jsonl"});
  EXPECT_EQ(data_files({"alpaca_data.json", "README.md"}, Split::train), Paths{"alpaca_data.json"});
}

TEST(ChooseDataFiles, TheFileItselfSaysMoreThanItsFolder) {
  EXPECT_EQ(data_files({"train/part1.jsonl", "train/part2.jsonl", "train/test.jsonl"}, Split::train),
            (Paths{"train/part1.jsonl", "train/part2.jsonl"}));
}

TEST(ChooseDataFiles, AsksWhichOfSeveralSetsIsMeant) {
  const Paths chat{"data/train_gen-00000-of-00001.parquet", "data/train_sft-00000-of-00001.parquet",
                   "data/test_sft-00000-of-00001.parquet"};
  const std::string problem = data_problem(chat, Split::train);
  EXPECT_TRUE(contains(problem, "several sets of rows")) << problem;
  EXPECT_TRUE(contains(problem, "a/b/data/train_sft-*.parquet")) << problem;
  EXPECT_EQ(data_files(chat, Split::train, "data/train_sft-*.parquet"), Paths{chat[1]});
  const Paths configs{"large/train.jsonl", "small/train.jsonl", "small/test.jsonl"};
  EXPECT_TRUE(contains(data_problem(configs, Split::train), "a/b/small/train.jsonl"));
  EXPECT_EQ(data_files(configs, Split::train, "small"), Paths{"small/train.jsonl"});
}

TEST(ChooseDataFiles, NumbersAndShardsAreOneSet) {
  EXPECT_EQ(data_files({"train1.jsonl", "train22.jsonl", "train333.csv.gz"}, Split::any).size(), 3u);
  const std::string problem =
      data_problem({"train-7-a.jsonl", "train-8-a.jsonl", "train-1-b.jsonl"}, Split::train);
  EXPECT_TRUE(contains(problem, "a/b/train-*-a.jsonl\n  a/b/train-*-b.jsonl")) << problem;
  const Paths hashed{"train-00000-of-00002-0123456789abcdef.parquet",
                     "train-00001-of-00002-fedcba9876543210.parquet"};
  EXPECT_EQ(data_files(hashed, Split::train), hashed);
}

TEST(ChooseDataFiles, TakeLinearTime) {
  Paths many;
  for (int i = 0; i < 100'000; i++) many.push_back(concat("data/train-", i, ".jsonl"));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(data_files(many, Split::train).size(), many.size());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(ChooseDataFiles, SaysWhatThereIs) {
  EXPECT_TRUE(contains(data_problem({"train.jsonl"}, Split::eval), "a/b/train.jsonl"));
  EXPECT_TRUE(contains(data_problem({"load.py"}, Split::train), "a/b@refs/convert/parquet"));
  EXPECT_TRUE(
      contains(data_problem({"train.jsonl"}, Split::train, "trian.jsonl"), "did you mean a/b/train.jsonl?"));
}

}  // namespace
}  // namespace trainer::hub
