#include "data/stored_logits.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/logits_file.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

template <class Value>
std::string_view bytes_of_values(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

// The teacher's table may be larger: what lies beyond the model's belongs to the rest (-1). The first one
// becomes the likeliest token, and stands for those that are none.
void order(std::span<int32_t> ids, std::span<float> log_probs, int64_t vocab) {
  double beyond = 0;
  size_t best = 0;
  float most = kNoToken;
  for (size_t i = 0; i < ids.size(); i++) {
    if (ids[i] >= vocab) beyond += std::exp(static_cast<double>(std::exchange(log_probs[i], kNoToken)));
    if (ids[i] < 0 || log_probs[i] <= most) continue;
    most = log_probs[i];
    best = i;
  }
  for (size_t i = 0; beyond > 0 && i < ids.size(); i++) {
    if (ids[i] == -1)
      log_probs[i] = static_cast<float>(std::log(std::exp(static_cast<double>(log_probs[i])) + beyond));
  }
  std::swap(log_probs[0], log_probs[best]);
  std::swap(ids[0], ids[best]);
  if (ids[0] < 0 || ids[0] >= vocab) ids[0] = 0;
  for (size_t i = 1; i < ids.size(); i++)
    if (log_probs[i] == kNoToken) ids[i] = ids[0];
}

uint64_t key_of_tokens(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) {
  const std::string_view first = bytes_of_values(tokens), second = bytes_of_values(labels);
  return XXH3_64bits_withSeed(second.data(), second.size(), XXH3_64bits(first.data(), first.size()));
}

template <class Value>
TensorView view_of_values(const std::vector<Value>& values, Dtype dtype, std::vector<int64_t> shape) {
  return {dtype, std::move(shape), const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data())),
          values.size() * sizeof(Value)};
}

std::vector<std::string> differences_from(const std::map<std::string, std::string>& there,
                                          const std::map<std::string, std::string>& here) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : here) {
    const auto found = there.find(name);
    if (found != there.end() && found->second != value)
      lines.push_back(concat(name, ": ", found->second, " there, ", value, " here"));
  }
  return lines;
}

std::vector<fs::path> files_of_logits(const fs::path& path) {
  if (!fs::is_directory(path)) {
    if (!fs::exists(path))
      throw DataError(concat(path.string(), ": there is no such file (objective.logits)"));
    return {path};
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  if (files.empty()) throw DataError(concat(path.string(), ": has no .safetensors file (objective.logits)"));
  return files;
}

}  // namespace

std::string vocabulary_checksum(const Tokenizer& tokenizer, int64_t size) {
  RunningChecksum sum;
  for (int64_t id = 0; id < size; id++) {
    const auto token = static_cast<int32_t>(id);
    std::string text;
    try {
      text = tokenizer.decode({&token, 1}, /*skip_special_tokens=*/false);
    } catch (const DataError&) {  // an id without a token
    }
    sum.add(text);
    sum.add({"\0", 1});
  }
  return sum.digits();
}

std::vector<int32_t> learned_labels(const Sample& sample, bool encoder_decoder) {
  std::vector<int32_t> labels;
  for (size_t i = encoder_decoder ? 0 : 1; i < sample.labels.size(); i++)
    if (sample.labels[i] != kIgnore) labels.push_back(sample.labels[i]);
  return labels;
}

void LogitsOfRows::add(const Sample& sample, const TeacherTokens& teacher, bool encoder_decoder) {
  const std::vector<int32_t> learned = learned_labels(sample, encoder_decoder);
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(tokens, sample.input_ids);
  append(labels, learned);
  append(ids, teacher.ids);
  append(log_probs, teacher.log_probs);
  token_starts.push_back(std::ssize(tokens));
  label_starts.push_back(std::ssize(labels));
}

LogitsFacts LogitsFacts::of(const Tokenizer& tokenizer, std::map<std::string, std::string> made_of) {
  return {std::move(made_of), vocabulary_checksum(tokenizer, tokenizer.vocab_size()), tokenizer.vocab_size()};
}

void write_logits(const fs::path& path, const LogitsOfRows& rows, const LogitsFacts& facts) {
  const int64_t labels = std::ssize(rows.labels);
  const std::map<std::string, TensorView> tensors{
      {"tokens", view_of_values(rows.tokens, Dtype::i32, {std::ssize(rows.tokens)})},
      {"token_starts", view_of_values(rows.token_starts, Dtype::i64, {std::ssize(rows.token_starts)})},
      {"labels", view_of_values(rows.labels, Dtype::i32, {labels})},
      {"label_starts", view_of_values(rows.label_starts, Dtype::i64, {std::ssize(rows.label_starts)})},
      {"ids", view_of_values(rows.ids, Dtype::i32, {labels, rows.top})},
      {"log_probs", view_of_values(rows.log_probs, Dtype::f32, {labels, rows.top})}};
  write_safetensors(
      path, tensors,
      {{"logits_of", "trainer"},
       {"made_of",
        nlohmann::json(facts.made_of).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)},
       {"vocabulary", facts.vocabulary},
       {"vocabulary_size", std::to_string(facts.vocabulary_size)},
       {"xxh3", checksum_of_tensors(tensors)}});
}

std::string why_logits_do_not_fit(const fs::path& path, const LogitsFacts& facts) {
  try {
    const SafetensorsFile file = read_safetensors(path);
    const auto made_of = made_of_file(file);
    if (!made_of) return "is no file of this kind";
    std::vector<std::string> changed;
    for (const auto& [name, value] : facts.made_of) {
      const auto found = made_of->find(name);
      if (found == made_of->end() || found->second != value) changed.push_back(name);
    }
    if (!changed.empty()) return concat("no longer fits, because these have changed: ", join(changed));
    if (said_in(file, "vocabulary") != facts.vocabulary) return "is of another vocabulary";
    if (said_in(file, "xxh3") != checksum_of_tensors(file.tensors)) return "is damaged";
    return "";
  } catch (const FormatError&) {
    return "is damaged";
  }
}

void StoredLogits::add(const fs::path& path, const Tokenizer& tokenizer, const LogitsUse& use) {
  const auto file = std::make_shared<LogitsFile>(path);
  file->check_vocabulary(tokenizer, vocabularies_);
  file->check_values(vocab_, use.intact.contains(path));
  if (const auto made_of = file->made_of(); made_of && other_settings_.empty())
    other_settings_ = differences_from(*made_of, use.settings);
  top_ = std::max(top_, file->top());
  by_number_ = by_number_ || !file->has_tokens();
  for (int64_t row = 0; row < file->rows(); row++) {
    if (file->has_tokens())
      by_tokens_.emplace(key_of_tokens(file->tokens(row), file->labels(row)), places_.size());
    places_.push_back({files_.size(), row});
  }
  files_.push_back(file);
}

std::shared_ptr<const StoredLogits> StoredLogits::open(const fs::path& path, const Tokenizer& tokenizer,
                                                       const LogitsUse& use) {
  auto stored = std::make_shared<StoredLogits>();
  stored->name_ = path.string();
  stored->vocab_ = std::max(use.vocab, tokenizer.vocab_size());
  for (const fs::path& file : files_of_logits(path)) stored->add(file, tokenizer, use);
  return stored;
}

std::optional<TeacherTokens> StoredLogits::of(const Sample& sample, int64_t number,
                                              bool encoder_decoder) const {
  const std::vector<int32_t> labels = learned_labels(sample, encoder_decoder);
  TeacherTokens teacher;
  if (labels.empty()) return teacher;
  auto place = static_cast<size_t>(number);
  if (!by_number_) {
    const auto found = by_tokens_.find(key_of_tokens(sample.input_ids, labels));
    if (found == by_tokens_.end()) return std::nullopt;
    place = found->second;
  }
  if (place >= places_.size()) return std::nullopt;
  const auto [index, row] = places_[place];
  const LogitsFile& file = *files_[index];
  if (file.labels(row) != labels) return std::nullopt;
  teacher.top = file.top();
  const auto [first, last] = file.labels_of(row);
  for (int64_t label = first; label < last; label++) {
    const auto begin = std::ssize(teacher.ids);
    for (int64_t i = 0; i < file.top(); i++) {
      teacher.ids.push_back(file.id(label, i));
      teacher.log_probs.push_back(std::min(file.log_prob(label, i), 0.0F));
    }
    order(std::span(teacher.ids).subspan(static_cast<size_t>(begin)),
          std::span(teacher.log_probs).subspan(static_cast<size_t>(begin)), vocab_);
  }
  return teacher;
}

}  // namespace trainer
