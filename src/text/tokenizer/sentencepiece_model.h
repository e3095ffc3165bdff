// A SentencePiece model file: a protobuf message `ModelProto` (sentencepiece_model.proto of
// github.com/google/sentencepiece), read field by field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

struct SentencePieceModel {
  enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  std::vector<Piece> pieces;
  int64_t model_type = 1;  // 1: unigram
  std::string charsmap;    // NormalizerSpec.precompiled_charsmap
};

// Reads `content`, the content of the file `path`. Throws FormatError if it is not a SentencePiece model; the
// message names `path`.
SentencePieceModel read_sentencepiece_model(std::string_view content, const std::filesystem::path& path);

}  // namespace trainer
