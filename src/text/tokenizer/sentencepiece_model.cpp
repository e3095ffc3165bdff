#include "text/tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/not_text.h"

namespace trainer {
namespace {

// Iterates over the fields of one message. A field is a tag (number << 3 | wire type), then a value.
class Fields {
 public:
  Fields(std::string_view message, const std::filesystem::path& path) : rest_(message), path_(path) {}

  // Moves to the next field; false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    number_ = tag >> 3;
    switch (tag & 7) {
      case 0:
        value_ = varint();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(varint());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        damaged();
    }
    return true;
  }
  uint64_t number() const { return number_; }
  uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }
  float float32() const {
    float value = 0;
    std::memcpy(&value, bytes_.data(), std::min(bytes_.size(), sizeof value));
    return value;
  }

 private:
  [[noreturn]] void damaged() const {
    throw FormatError(concat(path_.string(), ": is damaged or is not a SentencePiece model; copy it again"));
  }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) damaged();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view rest_;
  const std::filesystem::path& path_;
  uint64_t number_ = 0, value_ = 0;
  std::string_view bytes_;
};

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view content, const std::filesystem::path& path) {
  if (content.empty()) throw FormatError(concat(path.string(), ": is empty; copy or download it again"));
  constexpr char kPiece = '\n';  // the tag with which all known models begin
  if (content[0] != kPiece) {
    if (const std::string what = other_kind(content); !what.empty())
      throw FormatError(concat(path.string(), ": ", what));
  }
  SentencePieceModel model;
  for (Fields fields(content, path); fields.next();) {
    Fields inner(fields.bytes(), path);
    switch (fields.number()) {
      case 1: {  // pieces
        SentencePieceModel::Piece piece;
        while (inner.next()) {
          if (inner.number() == 1) piece.text = inner.bytes();
          if (inner.number() == 2) piece.score = inner.float32();
          if (inner.number() == 3) piece.type = static_cast<SentencePieceModel::PieceType>(inner.value());
        }
        model.pieces.push_back(std::move(piece));
        break;
      }
      case 2:  // trainer_spec
        while (inner.next()) {
          if (inner.number() == 3) model.model_type = static_cast<int64_t>(inner.value());
        }
        break;
      case 3:  // normalizer_spec
        while (inner.next()) {
          if (inner.number() == 2) model.charsmap = inner.bytes();
        }
        break;
      default:
        break;
    }
  }
  return model;
}

}  // namespace trainer
