// The tokenizer of mteval-v13a, the standard one for BLEU.
#pragma once

#include <string>
#include <string_view>

namespace trainer::metrics {

// The tokens of a line with one space between them (sacrebleu, tokenizers/tokenizer_13a.py, tokenizer_re.py).
std::string tokenize_13a(std::string_view line);

}  // namespace trainer::metrics
