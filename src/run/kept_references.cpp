#include "run/kept_references.h"

#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/checksum.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "data/measure.h"
#include "run/fixed_settings.h"
#include "training/evaluate_answers.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using SortedJson = nlohmann::json;

std::string_view as_bytes(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

// The entries of fixed_settings() that make the model and its tokens. The rows are in the index's checksum.
bool is_of_model(const std::string& entry) {
  const bool of_rows = entry.starts_with("data.train") || entry.starts_with("data.eval");
  return entry.starts_with("model.") || entry.starts_with("lora.") ||
         (entry.starts_with("data.") && !of_rows);
}

// All that the log-probabilities depend on besides the rows, as text.
std::string model_in_words(const RunParts& parts) {
  std::string text = concat("program ", kVersion, "\ntype ", static_cast<int>(parts.prepared.model->dtype()),
                            parts.device.is_cpu() ? " cpu" : " gpu", "\n");
  for (const auto& [entry, value] : fixed_settings(parts.asked))
    if (is_of_model(entry)) text += concat(entry, " ", value, "\n");
  return text;
}

// A line of JSON, then the values.
void write_references(const fs::path& path, const std::string& made, const std::vector<double>& values) {
  const SortedJson head{{"made_of", made}, {"values", values.size()}, {"xxh3", checksum(as_bytes(values))}};
  write_to_cache(path, [&](std::ostream& out) {
    out << head.dump(-1, ' ', false, SortedJson::error_handler_t::replace) << '\n' << as_bytes(values);
  });
}

// Returns nullopt if there is no such file. One that is damaged is named, and not used.
std::optional<std::vector<double>> read_references(const fs::path& path, size_t count) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    const std::shared_ptr<const MappedFile> file = MappedFile::open(path);
    const std::string_view all = file->text();
    const size_t end = all.find('\n');
    const SortedJson head = SortedJson::parse(all.substr(0, end), nullptr, /*allow_exceptions=*/false);
    const std::string_view bytes = end == std::string_view::npos ? std::string_view() : all.substr(end + 1);
    if (head.is_object() && bytes.size() == count * sizeof(double) &&
        head.value("xxh3", "") == checksum(bytes)) {
      std::vector<double> values(count);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      mark_used(path);
      return values;
    }
    log::warning(concat(path.string(), ": is damaged; the reference's log-probabilities are computed again"));
  } catch (const FormatError& error) {
    log::warning(error.what());
  }
  return std::nullopt;
}

// All ranks use the values of rank 0.
void give_references(RunParts& parts, Dataset& data, const char* what, const std::string& model) {
  const std::string made = concat(model, "rows ", samples_text(data), " ", data.checksums().samples, "\n");
  const fs::path path =
      cache_folder(parts.asked.data.cache) / "references" / (checksum(made) + ".references");
  const auto count = static_cast<size_t>(data.size() * data.sides());
  std::optional<std::vector<double>> values;
  if (parts.ranks.is_first()) values = read_references(path, count);
  const bool found = all_reduce(parts.ranks, {values ? 1.0 : 0.0}, Channel::phases).front() > 0;
  if (found) {
    log::info(concat("the reference's log-probabilities of the ", what, " data: ", path.string()));
    values = all_reduce(parts.ranks, values.value_or(std::vector<double>(count, 0.0)), Channel::phases);
  } else {
    log::info(concat("the reference's log-probabilities of the ", what, " data: one pass over ",
                     grouped(data.size()), " rows, kept in ", path.string()));
    const Progress shown(concat("the reference's log-probabilities of the ", what, " data"));
    BatchBudget budget;
    values = sums_of_dataset(*parts.prepared.model, data, parts.resolved, parts.device, /*with_others=*/false,
                             budget, {}, {}, parts.ranks)
                 .answers;
    try {
      if (parts.ranks.is_first()) write_references(path, made, *values);
    } catch (const FormatError& error) {
      log::warning(
          concat("the reference's log-probabilities are not kept, so a run that resumes computes them "
                 "again: ",
                 error.what(), "; set data.cache to another folder"));
    }
  }
  data.set_references(std::move(*values));
}

}  // namespace

void keep_references(RunParts& parts) {
  if (parts.resolved.reference() != Reference::kept) return;
  parts.trainer.weights_changed();
  const std::string model = model_in_words(parts);
  give_references(parts, parts.train, "training", model);
  if (parts.eval) give_references(parts, *parts.eval, "evaluation", model);
}

}  // namespace trainer
