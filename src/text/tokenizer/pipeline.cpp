#include "text/tokenizer/pipeline.h"

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/tokenizer/byte_tokens.h"

namespace trainer {
namespace {

constexpr const char* kReplacementCharacter = "\ufffd";

std::string put_together(const std::vector<std::string>& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

}  // namespace

std::vector<std::string> Decoder::ByteLevel::apply(Tokens tokens) const {
  std::string bytes;
  for (const auto& token : tokens) bytes += byte_level_bytes(token).value_or(token);
  return {repair_utf8(bytes)};
}

std::vector<std::string> Decoder::Metaspace::apply(Tokens tokens) const {
  const Regex sign = Regex::literal(replacement);
  for (size_t i = 0; i < tokens.size(); i++) {
    const bool left_out = i == 0 && scheme != PrependScheme::never;
    tokens[i] = sign.replace_all(tokens[i], left_out ? "" : " ");
  }
  return tokens;
}

std::vector<std::string> Decoder::Replace::apply(Tokens tokens) const {
  for (auto& token : tokens) token = pattern.replace_all(token, content);
  return tokens;
}

std::vector<std::string> Decoder::ByteFallback::apply(Tokens tokens) const {
  Tokens out;
  std::string bytes;
  const auto finish = [&] {
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), kReplacementCharacter);
    }
    bytes.clear();
  };
  for (auto& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes.push_back(static_cast<char>(*byte));
    } else {
      finish();
      out.push_back(std::move(token));
    }
  }
  finish();
  return out;
}

std::vector<std::string> Decoder::Bytes::apply(Tokens tokens) const {
  return {repair_utf8(put_together(tokens), "")};
}

std::vector<std::string> Decoder::Fuse::apply(Tokens tokens) const { return {put_together(tokens)}; }

std::vector<std::string> Decoder::Strip::apply(Tokens tokens) const {
  for (auto& token : tokens) {
    std::string_view rest = token;
    for (size_t i = 0; i < start && rest.starts_with(content); i++) rest.remove_prefix(content.size());
    for (size_t i = 0; i < stop && rest.ends_with(content); i++) rest.remove_suffix(content.size());
    token = std::string(rest);
  }
  return tokens;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) return join(tokens, " ");
  for (const auto& step : steps_) {
    tokens = std::visit([&](const auto& kind) { return kind.apply(std::move(tokens)); }, step);
  }
  return put_together(tokens);
}

}  // namespace trainer
