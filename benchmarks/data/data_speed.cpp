// What benchmarks/data/side_by_side measures of trainer. One line of JSON on stdout.
//
//   data_speed rows MODEL FILE THREADS       JSONL -> collated micro-batches on the CPU, one epoch.
//   Conversations
//                                            are written by the template in FILE.jinja
//   data_speed encode MODEL FILE THREADS     the lines of a file -> ids
//   data_speed sentencepiece MODEL FILE THREADS   the same by the SentencePiece library, where it was found
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/data/batching.h"
#include "trainer/data/step_loader.h"
#include "trainer/text/tokenizer.h"

#include "support/temporary_directory.h"

#ifdef HAS_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace {

using namespace trainer;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A decoder's prompts and completions, 32 samples a step in micro-batches of 8.
nlohmann::json measure_rows(const std::string& model, const std::string& file, int64_t threads) {
  const auto tokenizer = load_tokenizer(model);
  const testing::TemporaryDirectory cache;  // so that nothing is known from an earlier call
  Config config;
  config.data.cache = cache.path().string();
  config.data.train = {file};
  if (std::filesystem::exists(file + ".jinja")) {
    config.data.kind = DataKind::chat;
    config.data.chat_template = file + ".jinja";
  } else {
    config.data.kind = DataKind::completion;
  }
  config.training.num_workers = threads;
  config.training.effective_batch_size = 32;
  auto begin = std::chrono::steady_clock::now();
  const Dataset dataset = Dataset::open_train(config, *tokenizer, /*encoder_decoder=*/false);
  const double open_seconds = seconds_since(begin);

  begin = std::chrono::steady_clock::now();
  const SampleOrder order(dataset.size(), config.data.shuffle, config.seed);
  StepLoader loader(dataset,
                    [&, seen = int64_t{0}]() mutable {
                      if (seen == dataset.size()) return std::vector<int64_t>{};
                      auto indices = order.step_at(seen, config.effective_batch_size());
                      seen += static_cast<int64_t>(indices.size());
                      return indices;
                    },
                    {threads, config.data.prefetch});
  CutLimits limits;
  limits.max_source_length = config.data.max_length;
  int64_t tokens = 0, supervised = 0, padded = 0;
  double cutting = 0, collating = 0;
  for (int64_t step = 0; step < steps_per_epoch(dataset.size(), config.effective_batch_size()); step++) {
    const EffectiveBatch batch = loader.next();
    tokens += batch.tokens;
    supervised += batch.supervised_tokens;
    auto since = std::chrono::steady_clock::now();
    const auto cuts = cut(batch, limits, false);
    cutting += seconds_since(since);
    since = std::chrono::steady_clock::now();
    for (const auto& slots : cuts) padded += collate(batch, slots, {false, 0, 0}, at::kCPU).input_ids.numel();
    collating += seconds_since(since);
  }
  return {{"rows", dataset.size()},  {"tokens", tokens},      {"supervised_tokens", supervised},
          {"padded_tokens", padded}, {"open", open_seconds},  {"epoch", seconds_since(begin)},
          {"cutting", cutting},      {"collating", collating}};
}

std::vector<std::string> lines_of(const std::string& file) {
  std::istringstream text(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// `encode` gives the number of tokens of a line.
nlohmann::json measure_lines(const std::string& file, int64_t threads,
                             const std::function<size_t(const std::string&)>& encode) {
  const std::vector<std::string> lines = lines_of(file);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<size_t> next = 0, tokens = 0;
  const auto work = [&] {
    constexpr size_t kChunk = 256;
    size_t found = 0;
    for (size_t first; (first = next.fetch_add(kChunk)) < lines.size();) {
      for (size_t i = first; i < std::min(first + kChunk, lines.size()); i++) found += encode(lines[i]);
    }
    tokens += found;
  };
  {
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < threads; i++) others.emplace_back(work);
    work();
  }
  return {{"rows", lines.size()}, {"tokens", tokens.load()}, {"epoch", seconds_since(begin)}};
}

nlohmann::json measure_sentencepiece(const std::string& model, const std::string& file, int64_t threads) {
#ifdef HAS_SENTENCEPIECE
  sentencepiece::SentencePieceProcessor processor;
  if (const auto status = processor.Load(model + "/spiece.model"); !status.ok())
    throw std::runtime_error(status.ToString());
  return measure_lines(file, threads, [&](const std::string& line) {
    std::vector<int> ids;
    if (!processor.Encode(line, &ids).ok()) throw std::runtime_error("it cannot be encoded: " + line);
    return ids.size();
  });
#else
  (void)model, (void)file, (void)threads;
  throw std::runtime_error("built without SentencePiece (Debian: libsentencepiece-dev)");
#endif
}

nlohmann::json measure(const std::string& what, const std::string& model, const std::string& file,
                       int64_t threads) {
  if (what == "rows") return measure_rows(model, file, threads);
  if (what == "sentencepiece") return measure_sentencepiece(model, file, threads);
  const auto tokenizer = load_tokenizer(model);
  return measure_lines(file, threads,
                       [&](const std::string& line) { return tokenizer->encode(line, false).size(); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "data_speed rows|encode|sentencepiece MODEL FILE THREADS\n";
    return 2;
  }
  try {
    at::set_num_threads(1);  // of LibTorch's operators: collating
    std::cout << measure(argv[1], argv[2], argv[3], std::atoll(argv[4])) << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
