#include "data/logits_file.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/stored_logits.h"
#include "formats/q8_0.h"

namespace trainer {
namespace {

constexpr std::array kIntegers{"ids", "labels", "label_starts", "tokens", "token_starts"};
constexpr const char* kTensors = "log_probs, ids, labels and label_starts (docs/distillation.md)";

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

}  // namespace

std::string said_in(const SafetensorsFile& file, const char* name) {
  const auto found = file.metadata.find(name);
  return found == file.metadata.end() ? "" : found->second;
}

std::optional<std::map<std::string, std::string>> made_of_file(const SafetensorsFile& file) {
  const auto said = nlohmann::json::parse(said_in(file, "made_of"), nullptr, /*allow_exceptions=*/false);
  try {
    if (said.is_object()) return said.get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception&) {  // not only texts
  }
  return std::nullopt;
}

std::string checksum_of_tensors(const std::map<std::string, TensorView>& tensors) {
  RunningChecksum sum;
  for (const auto& [name, view] : tensors) {
    sum.add(name);
    sum.add({reinterpret_cast<const char*>(view.data), view.nbytes});
  }
  return sum.digits();
}

LogitsFile::LogitsFile(const std::filesystem::path& path) : path_(path.string()) {
  try {
    file_ = read_safetensors(path);
  } catch (const FormatError& error) {
    throw DataError(error.what());
  }
  check_shapes();
}

void LogitsFile::refuse(const std::string& why) const { throw DataError(concat(path_, ": ", why)); }

bool LogitsFile::has_tokens() const {
  return file_.tensors.contains("tokens") && file_.tensors.contains("token_starts");
}

std::pair<int64_t, int64_t> LogitsFile::range(const char* starts, int64_t row) const {
  return {integer_at(at(starts), row), integer_at(at(starts), row + 1)};
}

std::vector<int32_t> LogitsFile::part(const char* name, const char* starts, int64_t row) const {
  const auto [begin, end] = range(starts, row);
  std::vector<int32_t> values;
  for (int64_t i = begin; i < end; i++) values.push_back(static_cast<int32_t>(integer_at(at(name), i)));
  return values;
}

int32_t LogitsFile::id(int64_t label, int64_t i) const {
  return static_cast<int32_t>(integer_at(at("ids"), label * top_ + i));
}

float LogitsFile::log_prob(int64_t label, int64_t i) const {
  return number_at(at("log_probs"), label * top_ + i);
}

void LogitsFile::check_shapes() {
  for (const char* name : {"ids", "labels", "label_starts", "log_probs"}) {
    if (!file_.tensors.contains(name)) refuse(concat("has no tensor \"", name, "\"; it needs ", kTensors));
  }
  const auto holds_others = [&](const char* name) {
    return file_.tensors.contains(name) && !holds_integers(at(name));
  };
  if (std::ranges::any_of(kIntegers, holds_others) || !holds_numbers(at("log_probs")))
    refuse("ids, labels, tokens and starts must be I32 or I64, log_probs F32, F16 or BF16");
  const auto& shape = at("ids").shape;
  if (shape.size() != 2 || shape != at("log_probs").shape || shape[1] < 1 ||
      at("labels").shape != std::vector<int64_t>{shape[0]})
    refuse("ids and log_probs must be [labels, top], and labels [labels]");
  labels_ = shape[0];
  top_ = shape[1];
  rows_ = check_starts("label_starts", labels_);
  if (has_tokens() && check_starts("token_starts", elements_of(at("tokens"))) != rows_)
    refuse("token_starts and label_starts are of different numbers of rows");
}

int64_t LogitsFile::check_starts(const char* name, int64_t end) const {
  const TensorView& starts = at(name);
  const int64_t count = starts.shape.size() == 1 ? starts.shape[0] : 0;
  bool rises = count > 0 && integer_at(starts, 0) == 0 && integer_at(starts, count - 1) == end;
  for (int64_t i = 1; rises && i < count; i++) rises = integer_at(starts, i) >= integer_at(starts, i - 1);
  if (!rises)
    refuse(concat(name, " must rise from 0 to ", end, ", with one number more than there are rows"));
  return count - 1;
}

void LogitsFile::check_vocabulary(const Tokenizer& tokenizer, std::map<int64_t, std::string>& known) const {
  const std::string theirs = said_in(file_, "vocabulary");
  if (theirs.empty()) {
    log::warning(
        concat(path_, ": does not say of which vocabulary its ids are; they are taken for the model's"));
    return;
  }
  const int64_t size = std::atoll(said_in(file_, "vocabulary_size").c_str());
  if (size <= tokenizer.vocab_size() && !known.contains(size))
    known[size] = vocabulary_checksum(tokenizer, size);
  if (size > tokenizer.vocab_size() || known[size] != theirs)
    refuse(concat("is of another vocabulary (", grouped(size), " tokens) than the model's (",
                  grouped(tokenizer.vocab_size()),
                  "): a teacher must have the tokens of the model that learns from it"));
}

void LogitsFile::check_values(int64_t vocab, bool is_intact) const {
  const std::string sum = said_in(file_, "xxh3");
  if (!sum.empty()) {
    if (!is_intact && sum != checksum_of_tensors(file_.tensors)) refuse("is damaged; write it again");
    return;
  }
  check_ids("labels", "label_starts", vocab);
  if (has_tokens()) check_ids("tokens", "token_starts", vocab);
  check_teacher(vocab);
}

void LogitsFile::refuse_token(int64_t id, int64_t row, int64_t vocab) const {
  refuse(concat("row ", row + 1, " has the token ", id, ", and the model's vocabulary ends at ", vocab - 1,
                ": it is of another vocabulary"));
}

void LogitsFile::check_ids(const char* name, const char* starts, int64_t vocab) const {
  for (int64_t row = 0; row < rows_; row++) {
    const auto [begin, end] = range(starts, row);
    for (int64_t i = begin; i < end; i++) {
      const int64_t id = integer_at(at(name), i);
      if (id < 0 || id >= vocab) refuse_token(id, row, vocab);
    }
  }
}

// The likeliest tokens, and their log-probabilities.
void LogitsFile::check_teacher(int64_t vocab) const {
  std::vector<int64_t> seen(static_cast<size_t>(top_));
  for (int64_t label = 0, row = 0; label < labels_; label++) {
    while (labels_of(row).second <= label) row++;
    bool has_token = false;
    for (int64_t i = 0; i < top_; i++) {
      const int64_t id = integer_at(at("ids"), label * top_ + i);
      const float log_p = log_prob(label, i);
      seen[static_cast<size_t>(i)] = log_p == kNoToken ? -2 - i : id;
      if (log_p == kNoToken) continue;
      has_token = has_token || id >= 0;
      if (id < -1 || id >= vocab) refuse_token(id, row, vocab);
      if (!(log_p <= 1e-2F))
        refuse(concat("row ", row + 1, " has ", log_p,
                      " in log_probs, which is no logarithm of a probability; store log_softmax"));
    }
    std::ranges::sort(seen);
    if (!has_token || std::ranges::adjacent_find(seen) != seen.end())
      refuse(concat("row ", row + 1, ", label ", label, has_token ? " has a token twice" : " has no token"));
  }
}

}  // namespace trainer
