// What a checkpoint holds besides weights: the optimizer state, the position of the run, Transformers' state.
#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "formats/checkpoint_fixture.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::overwrite;
using test::TemporaryDirectory;

TrainerState golden_state() {
  TrainerState state;
  state.epoch = 1.25;
  state.global_step = 50;
  state.max_steps = 200;
  state.logging_steps = 10;
  state.eval_steps = state.save_steps = 25;
  state.train_batch_size = 4;
  state.num_train_epochs = 5;
  state.num_input_tokens_seen = 123456;
  state.best_metric = 1.0 / 3;
  state.best_global_step = 25;
  state.best_model_checkpoint = "out/grün/checkpoint-25";
  const auto row = [](double epoch, double norm, double rate, double loss, int64_t step) {
    return nlohmann::ordered_json{
        {"epoch", epoch}, {"grad_norm", norm}, {"learning_rate", rate}, {"loss", loss}, {"step", step}};
  };
  state.log_history.push_back(row(0.25, 2.345678901234567, 4.9e-05, 10.5, 10));
  state.log_history.push_back(row(0.5, 1e-07, 1e-05, 0.0001, 20));
  state.log_history.push_back({{"epoch", 0.625}, {"eval_loss", 1.0 / 3}, {"step", 25}});
  state.stateful_callbacks["EarlyStoppingCallback"] = {
      {"args", {{"early_stopping_patience", 3}, {"early_stopping_threshold", 0.0}}},
      {"attributes", {{"early_stopping_patience_counter", 1}}}};
  return state;
}

// The golden is made by Transformers (make_trainer_state.py).
TEST(TrainerState, IsWrittenToTheByteAsTransformersDoes) {
  TemporaryDirectory directory;
  write_trainer_state(directory.path(), golden_state());
  EXPECT_EQ(read_file(directory / "trainer_state.json"),
            read_file(std::filesystem::path(SOURCE_DIR) / "tests/goldens/formats/trainer_state.json"));
}

TEST(TrainerState, ThatTransformersWroteIsRead) {
  TemporaryDirectory directory;
  const std::filesystem::path goldens = std::filesystem::path(SOURCE_DIR) / "tests/goldens/formats";
  const TrainerState state = read_trainer_state(goldens);
  EXPECT_EQ(state.global_step, 50);
  EXPECT_EQ(state.best_metric, 1.0 / 3);
  EXPECT_EQ(state.log_history.size(), 3u);
  write_trainer_state(directory.path(), state);
  EXPECT_EQ(read_file(directory / "trainer_state.json"), read_file(goldens / "trainer_state.json"));
}

TEST(TrainerState, AbsentFieldsHaveTheirDefaultsAndWrongOnesAreNamed) {
  TemporaryDirectory directory;
  overwrite(directory / kTrainerStateFile, R"({"global_step": 3, "best_metric": null, "other": 1})");
  EXPECT_EQ(read_trainer_state(directory.path()).global_step, 3);
  EXPECT_EQ(read_trainer_state(directory.path()).save_steps, 500);
  for (const char* text : {R"({"global_step": 3.5})", R"({"global_step": 99999999999999999999})",
                           R"({"global_step": null})", R"({"global_step": true})"}) {
    overwrite(directory / kTrainerStateFile, text);
    const std::string message = error_message<FormatError>([&] { read_trainer_state(directory.path()); });
    EXPECT_TRUE(contains(message, "trainer_state.json: global_step: is not a whole number")) << message;
  }
}

RunPosition some_position() {
  RunPosition position;
  position.step = 50;
  position.samples_seen = 1600;
  position.tokens_seen = int64_t{1} << 40;
  position.total_steps = 200;
  position.dataset_size = 400;
  position.metrics_bytes = 12345;
  position.seconds_trained = 61.5;
  position.losses_to_log = 1.0 / 3;
  position.steps_to_log = 7;
  position.evaluations_without_gain = 1;
  position.evaluation_due = true;
  position.bad_steps_in_a_row = 2;
  position.recent_losses = {0.1, 1.0 / 3, 5e-324};
  position.best_metric = 0.1;
  position.best_step = 25;
  position.budgets = {{"source_tokens", 4096}};
  position.fixed = {{"seed", "42"}, {"data.train", "a.jsonl, 100 rows, xxh3 00"}};
  return position;
}

TEST(RunPosition, IsReadAsItWasWritten) {
  TemporaryDirectory directory;
  const RunPosition position = some_position();
  write_position(directory.path(), position);
  const RunPosition read = read_position(directory.path());
  EXPECT_EQ(read.step, position.step);
  EXPECT_EQ(read.samples_seen, position.samples_seen);
  EXPECT_EQ(read.tokens_seen, position.tokens_seen);
  EXPECT_EQ(read.total_steps, position.total_steps);
  EXPECT_EQ(read.dataset_size, position.dataset_size);
  EXPECT_EQ(read.metrics_bytes, position.metrics_bytes);
  EXPECT_EQ(read.seconds_trained, position.seconds_trained);
  EXPECT_EQ(read.losses_to_log, position.losses_to_log);
  EXPECT_EQ(read.steps_to_log, position.steps_to_log);
  EXPECT_EQ(read.evaluations_without_gain, position.evaluations_without_gain);
  EXPECT_EQ(read.evaluation_due, position.evaluation_due);
  EXPECT_EQ(read.bad_steps_in_a_row, position.bad_steps_in_a_row);
  EXPECT_EQ(read.recent_losses, position.recent_losses);
  EXPECT_EQ(read.best_metric, position.best_metric);
  EXPECT_EQ(read.best_step, position.best_step);
  EXPECT_EQ(read.budgets, position.budgets);
  EXPECT_EQ(read.fixed, position.fixed);
}

TEST(RunPosition, WhatIsMissingOrWrongIsNamed) {
  TemporaryDirectory directory;
  const auto message_of = [&](const std::string& text) {
    overwrite(directory / kPositionFile, text);
    return error_message<FormatError>([&] { read_position(directory.path()); });
  };
  const std::string rest = R"("total_steps": 1, "metrics_bytes": 0)";
  EXPECT_TRUE(contains(message_of(R"({"step": 1, )" + rest + "}"), "samples_seen is missing"));
  EXPECT_TRUE(
      contains(message_of(R"({"step": 1, "samples_seen": -1, )" + rest + "}"), "samples_seen: is negative"));
  EXPECT_TRUE(contains(message_of(R"({"fixed": {"seed": 3}})"), "fixed.seed: is not a text"));
  EXPECT_TRUE(contains(message_of(R"({"recent_losses": 3})"), "recent_losses: is not a list"));
  EXPECT_TRUE(contains(message_of(R"({"recent_losses": [1, "x"]})"), "recent_losses[1]: is not a number"));
  EXPECT_TRUE(contains(message_of(R"({"step": 1e999})"), "has a number that is too large"));
  EXPECT_TRUE(contains(message_of("[1]"), "is not a JSON object"));
  EXPECT_TRUE(contains(message_of(std::string(1000, '{')), "trainer_position.json"));
}

TEST(RunPosition, ThatWasChangedAfterItWasWrittenIsRefused) {
  TemporaryDirectory directory;
  write_position(directory.path(), some_position());
  std::string text = read_file(directory / kPositionFile);
  const size_t at = text.find("\"dataset_size\": 400");
  ASSERT_NE(at, std::string::npos);
  overwrite(directory / kPositionFile, text.replace(at, 19, "\"dataset_size\": 0"));
  const auto message = error_message<FormatError>([&] { read_position(directory.path()); });
  EXPECT_TRUE(contains(message, "trainer_position.json: is damaged: ")) << message;
}

TEST(RunPosition, OfAnEarlierVersionHasNoChecksumAndSensibleNumbers) {
  TemporaryDirectory directory;
  const std::string rest =
      R"("step": 3, "samples_seen": 24, "total_steps": 9, "metrics_bytes": 0, "dataset_size": )";
  overwrite(directory / kPositionFile, "{" + rest + "8}");
  EXPECT_EQ(read_position(directory.path()).dataset_size, 8);
  overwrite(directory / kPositionFile, "{" + rest + "0}");
  const auto message = error_message<FormatError>([&] { read_position(directory.path()); });
  EXPECT_TRUE(contains(message, "dataset_size: is 0, although step is 3")) << message;
}

TEST(Differences, NameKeyAndBothValues) {
  const auto found = differences({{"seed", "1"}, {"lora.r", "8"}, {"gone", "x"}},
                                 {{"seed", "2"}, {"lora.r", "8"}, {"new", "y"}});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].key + " " + found[0].saved + " " + found[0].now, "gone x -");
  EXPECT_EQ(found[1].key + " " + found[1].saved + " " + found[1].now, "new - y");
  EXPECT_EQ(found[2].key + " " + found[2].saved + " " + found[2].now, "seed 1 2");
}

TEST(Differences, AreNoneWhereAPathThatIsNoUtf8WasSaved) {
  TemporaryDirectory directory;
  RunPosition position;
  position.fixed = {{"data.train", "data\xff.jsonl"}};
  write_position(directory.path(), position);
  EXPECT_TRUE(differences(read_position(directory.path()).fixed, position.fixed).empty());
}

TEST(OptimizerState, IsKeptByTheNamesOfParameters) {
  TemporaryDirectory directory;
  std::string a(8, 'a'), b(8, 'b'), c(16, 'c');
  const auto view = [](std::string& bytes) {
    return TensorView{Dtype::f32,
                      {static_cast<int64_t>(bytes.size() / 4)},
                      reinterpret_cast<std::byte*>(bytes.data()),
                      bytes.size()};
  };
  write_optimizer_state(directory.path(), "adamw", 7,
                        {{"encoder.q.weight", sources_of({{"exp_avg", view(a)}, {"exp_avg_sq", view(b)}})},
                         {"head", sources_of({{"master", view(c)}})}});
  const SafetensorsFile file = read_safetensors(directory / kOptimizerFile);
  EXPECT_TRUE(file.tensors.contains("encoder.q.weight.exp_avg"));
  const OptimizerState state = read_optimizer_state(directory.path());
  EXPECT_EQ(state.name, "adamw");
  EXPECT_EQ(state.steps_taken, 7);
  ASSERT_EQ(state.tensors.size(), 2u);
  EXPECT_EQ(state.tensors.at("encoder.q.weight").size(), 2u);
  const TensorView& read = state.tensors.at("head").at("master");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.data), read.nbytes), c);
}

TEST(OptimizerState, WhatIsNoneIsRefused) {
  TemporaryDirectory directory;
  std::string bytes(4, 'x');
  const TensorView view{Dtype::f32, {1}, reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
  const auto message_of = [&](const std::string& name, const std::map<std::string, std::string>& metadata) {
    write_safetensors(directory / kOptimizerFile, {{name, view}}, metadata);
    return error_message<FormatError>([&] { read_optimizer_state(directory.path()); });
  };
  EXPECT_TRUE(contains(message_of("w.exp_avg", {}), "steps_taken"));
  EXPECT_TRUE(contains(message_of("w.exp_avg", {{"steps_taken", "7x"}}), "steps_taken"));
  for (const char* name : {"exp_avg", ".exp_avg", "w."})
    EXPECT_TRUE(contains(message_of(name, {{"steps_taken", "7"}}), "PARAMETER.WHAT")) << name;
}

}  // namespace
}  // namespace trainer
