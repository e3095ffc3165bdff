#include "data/stored_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "formats/q8_0.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

constexpr float kNoToken = -std::numeric_limits<float>::infinity();
constexpr const char* kTensors = "log_probs, ids, labels and label_starts (docs/distillation.md)";

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
Value read_value(const std::byte* at) {  // which may not be aligned
  Value value;
  std::memcpy(&value, at, sizeof(Value));
  return value;
}

int64_t integer_at(const TensorView& view, int64_t index) {
  const std::byte* at = view.data + static_cast<size_t>(index) * dtype_size(view.dtype);
  return view.dtype == Dtype::i64 ? read_value<int64_t>(at) : read_value<int32_t>(at);
}

float number_at(const TensorView& view, int64_t index) {
  const std::byte* at = view.data + static_cast<size_t>(index) * dtype_size(view.dtype);
  if (view.dtype == Dtype::f32) return read_value<float>(at);
  const auto half = read_value<uint16_t>(at);
  if (view.dtype == Dtype::f16) return from_half(half);
  const uint32_t bits = static_cast<uint32_t>(half) << 16U;
  return read_value<float>(reinterpret_cast<const std::byte*>(&bits));
}

bool holds_integers(const TensorView& view) { return view.dtype == Dtype::i64 || view.dtype == Dtype::i32; }
bool holds_numbers(const TensorView& view) {
  return view.dtype == Dtype::f32 || view.dtype == Dtype::f16 || view.dtype == Dtype::bf16;
}

int64_t elements_of(const TensorView& view) {
  return static_cast<int64_t>(view.nbytes / dtype_size(view.dtype));
}

std::vector<int32_t> integers_of(const TensorView& view, int64_t begin, int64_t end) {
  std::vector<int32_t> values;
  for (int64_t i = begin; i < end; i++) values.push_back(static_cast<int32_t>(integer_at(view, i)));
  return values;
}

std::string checksum_of_tensors(const std::map<std::string, TensorView>& tensors) {
  RunningChecksum sum;
  for (const auto& [name, view] : tensors) {
    sum.add(name);
    sum.add({reinterpret_cast<const char*>(view.data), view.nbytes});
  }
  return sum.digits();
}

template <class Value>
TensorView view_of_values(const std::vector<Value>& values, Dtype dtype, std::vector<int64_t> shape) {
  return {dtype, std::move(shape), const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data())),
          values.size() * sizeof(Value)};
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
  write_safetensors(path, tensors,
                    {{"logits_of", "trainer"},
                     {"made_of", nlohmann::json(facts.made_of).dump()},
                     {"vocabulary", facts.vocabulary},
                     {"vocabulary_size", std::to_string(facts.vocabulary_size)},
                     {"xxh3", checksum_of_tensors(tensors)}});
}

std::string why_logits_do_not_fit(const fs::path& path, const LogitsFacts& facts) {
  try {
    const SafetensorsFile file = read_safetensors(path);
    const auto text = [&](const char* name) {
      const auto found = file.metadata.find(name);
      return found == file.metadata.end() ? std::string() : found->second;
    };
    const auto made_of = nlohmann::json::parse(text("made_of"), nullptr, /*allow_exceptions=*/false);
    if (!made_of.is_object()) return "is no file of this kind";
    std::vector<std::string> changed;
    for (const auto& [name, value] : facts.made_of)
      if (made_of.value(name, "") != value) changed.push_back(name);
    if (!changed.empty()) return concat("no longer fits, because these have changed: ", join(changed));
    if (text("vocabulary") != facts.vocabulary) return "is of another vocabulary";
    if (text("xxh3") != checksum_of_tensors(file.tensors)) return "is damaged";
    return "";
  } catch (const FormatError&) {
    return "is damaged";
  }
}

struct StoredLogits::File {
  std::string path;
  SafetensorsFile file;
  int64_t top = 0, rows = 0, labels = 0;

  const TensorView& at(const char* name) const { return file.tensors.at(name); }
  bool has_tokens() const { return file.tensors.contains("tokens") && file.tensors.contains("token_starts"); }
  std::string text(const char* name) const {
    const auto found = file.metadata.find(name);
    return found == file.metadata.end() ? std::string() : found->second;
  }
  [[noreturn]] void refuse(const std::string& why) const { throw DataError(concat(path, ": ", why)); }
  std::pair<int64_t, int64_t> range(const char* starts, int64_t row) const {
    return {integer_at(at(starts), row), integer_at(at(starts), row + 1)};
  }
  std::vector<int32_t> part(const char* name, const char* starts, int64_t row) const {
    const auto [begin, end] = range(starts, row);
    return integers_of(at(name), begin, end);
  }

  void check_shapes() {
    for (const char* name : {"ids", "labels", "label_starts", "log_probs"}) {
      if (!file.tensors.contains(name)) refuse(concat("has no tensor \"", name, "\"; it needs ", kTensors));
    }
    const bool whole = holds_integers(at("ids")) && holds_integers(at("labels")) &&
                       holds_integers(at("label_starts")) && holds_numbers(at("log_probs"));
    if (!whole) refuse("ids, labels and starts must be I32 or I64, log_probs F32, F16 or BF16");
    const auto& shape = at("ids").shape;
    if (shape.size() != 2 || shape != at("log_probs").shape || shape[1] < 1 ||
        at("labels").shape != std::vector<int64_t>{shape[0]})
      refuse("ids and log_probs must be [labels, top], and labels [labels]");
    labels = shape[0];
    top = shape[1];
    rows = check_starts("label_starts", labels);
    if (has_tokens() && check_starts("token_starts", elements_of(at("tokens"))) != rows)
      refuse("token_starts and label_starts are of different numbers of rows");
  }
  int64_t check_starts(const char* name, int64_t end) const {
    const TensorView& starts = at(name);
    const int64_t count = starts.shape.size() == 1 ? starts.shape[0] : 0;
    bool rises = count > 0 && integer_at(starts, 0) == 0 && integer_at(starts, count - 1) == end;
    for (int64_t i = 1; rises && i < count; i++) rises = integer_at(starts, i) >= integer_at(starts, i - 1);
    if (!rises)
      refuse(concat(name, " must rise from 0 to ", end, ", with one number more than there are rows"));
    return count - 1;
  }

  // `known`: the checksums of the tokenizer's first tokens, by their number.
  void check_vocabulary(const Tokenizer& tokenizer, std::map<int64_t, std::string>& known) const {
    const std::string theirs = text("vocabulary");
    if (theirs.empty()) {
      log::warning(
          concat(path, ": does not say of which vocabulary its ids are; they are taken for the model's"));
      return;
    }
    const int64_t size = std::atoll(text("vocabulary_size").c_str());
    if (size <= tokenizer.vocab_size() && !known.contains(size))
      known[size] = vocabulary_checksum(tokenizer, size);
    if (size > tokenizer.vocab_size() || known[size] != theirs)
      refuse(concat("is of another vocabulary (", grouped(size), " tokens) than the model's (",
                    grouped(tokenizer.vocab_size()),
                    "): a teacher must have the tokens of the model that learns from it"));
  }

  // What another program has written.
  void check_values(int64_t vocab) const {
    std::vector<int64_t> seen(static_cast<size_t>(top));
    for (int64_t label = 0; label < labels; label++) {
      bool has_token = false;
      for (int64_t i = 0; i < top; i++) {
        const int64_t id = integer_at(at("ids"), label * top + i);
        const float log_p = number_at(at("log_probs"), label * top + i);
        seen[static_cast<size_t>(i)] = log_p == kNoToken ? -2 - i : id;
        if (log_p == kNoToken) continue;
        has_token = has_token || id >= 0;
        if (id < -1 || id >= vocab)
          refuse(concat("has the token ", id, ", and the model's vocabulary ends at ", vocab - 1,
                        ": it is of another vocabulary"));
        if (!(log_p <= 1e-2F))
          refuse(
              concat("log_probs has ", log_p, ", which is no logarithm of a probability; store log_softmax"));
      }
      std::ranges::sort(seen);
      if (!has_token || std::ranges::adjacent_find(seen) != seen.end())
        refuse(concat("label ", label, has_token ? " has a token twice" : " has no token"));
    }
  }
};

void StoredLogits::add(const fs::path& path, const Tokenizer& tokenizer) {
  const auto file = std::make_shared<File>();
  file->path = path.string();
  try {
    file->file = read_safetensors(path);
  } catch (const FormatError& error) {
    throw DataError(error.what());
  }
  file->check_shapes();
  file->check_vocabulary(tokenizer, vocabularies_);
  const std::string sum = file->text("xxh3");
  if (sum.empty()) {
    file->check_values(vocab_);
  } else if (sum != checksum_of_tensors(file->file.tensors)) {
    file->refuse("is damaged; write it again");
  }
  top_ = std::max(top_, file->top);
  by_number_ = by_number_ || !file->has_tokens();
  for (int64_t row = 0; row < file->rows; row++) {
    if (file->has_tokens()) {
      const uint64_t key =
          key_of_tokens(file->part("tokens", "token_starts", row), file->part("labels", "label_starts", row));
      by_tokens_.emplace(key, places_.size());
    }
    places_.push_back({files_.size(), row});
  }
  files_.push_back(file);
}

std::shared_ptr<const StoredLogits> StoredLogits::open(const fs::path& path, const Tokenizer& tokenizer,
                                                       int64_t rows) {
  auto stored = std::make_shared<StoredLogits>();
  stored->name_ = path.string();
  stored->vocab_ = std::max(rows, tokenizer.vocab_size());
  for (const fs::path& file : files_of_logits(path)) stored->add(file, tokenizer);
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
  const File& file = *files_[index];
  if (file.part("labels", "label_starts", row) != labels) return std::nullopt;
  const int64_t first = file.range("label_starts", row).first;
  teacher.top = file.top;
  for (int64_t label = first; label < first + std::ssize(labels); label++) {
    const auto begin = std::ssize(teacher.ids);
    for (int64_t i = label * file.top; i < (label + 1) * file.top; i++) {
      teacher.ids.push_back(static_cast<int32_t>(integer_at(file.at("ids"), i)));
      teacher.log_probs.push_back(std::min(number_at(file.at("log_probs"), i), 0.0F));
    }
    order(std::span(teacher.ids).subspan(static_cast<size_t>(begin)),
          std::span(teacher.log_probs).subspan(static_cast<size_t>(begin)), vocab_);
  }
  return teacher;
}

}  // namespace trainer
