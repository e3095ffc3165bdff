#include "trainer/data/sample_view.h"

#include <algorithm>
#include <span>

#include "trainer/data/batching.h"

namespace trainer {
namespace {

using Pieces = std::vector<SampleView::Piece>;

// Returns where the text of the first tokens ends in the text of all tokens, at a character boundary. Decoded
// alone, the first tokens may give a different end, when a token holds part of a character.
size_t end_of(std::span<const int32_t> first, const std::string& whole, const Tokenizer& tokenizer) {
  const std::string alone = tokenizer.decode(first, /*skip_special_tokens=*/false);
  auto end = static_cast<size_t>(std::ranges::mismatch(alone, whole).in2 - whole.begin());
  while (end > 0 && end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xc0) == 0x80) end--;
  return end;
}

// labels: as long as ids.
Pieces tokens_of(std::span<const int32_t> ids, std::span<const int32_t> labels, const Tokenizer& tokenizer) {
  Pieces pieces;
  const std::string whole = tokenizer.decode(ids, /*skip_special_tokens=*/false);
  size_t begin = 0;
  for (size_t at = 0; at < ids.size();) {
    const bool supervised = labels[at] != kIgnore;
    while (at < ids.size() && (labels[at] != kIgnore) == supervised) at++;
    const size_t end =
        at == ids.size() ? whole.size() : std::max(begin, end_of(ids.first(at), whole, tokenizer));
    pieces.push_back({whole.substr(begin, end - begin), supervised});
    begin = end;
  }
  return pieces;
}

}  // namespace

SampleView view_of(const Sample& sample, bool encoder_decoder, const std::string& origin,
                   const Tokenizer& tokenizer) {
  SampleView view;
  view.origin = origin;
  view.input_tokens = static_cast<int64_t>(sample.input_ids.size());
  view.supervised_tokens = supervised_tokens(sample, encoder_decoder);
  if (!encoder_decoder) {
    std::vector<int32_t> labels = sample.labels;
    if (!labels.empty()) labels.front() = kIgnore;  // nothing predicts it
    view.input = tokens_of(sample.input_ids, labels, tokenizer);
    return view;
  }
  const std::vector<int32_t> none(sample.input_ids.size(), kIgnore);
  view.input = tokens_of(sample.input_ids, none, tokenizer);
  std::vector<int32_t> target = sample.labels;
  std::erase(target, kIgnore);
  view.target = tokens_of(target, target, tokenizer);
  view.target_tokens = static_cast<int64_t>(target.size());
  return view;
}

}  // namespace trainer
