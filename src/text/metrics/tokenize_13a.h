// The tokenizer of mteval-v13a, the standard tokenizer for BLEU.
#pragma once

#include <string>
#include <string_view>

namespace trainer::metrics {

// Returns the tokens of a line with one space between them (as in sacrebleu, tokenizers/tokenizer_13a.py,
// tokenizer_re.py).
std::string tokenize_13a(std::string_view line);

}  // namespace trainer::metrics
