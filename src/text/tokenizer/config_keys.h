// The keys of tokenizer_config.json and special_tokens_map.json.
#pragma once

#include "text/tokenizer/json_reader.h"

namespace trainer {

// Throws FormatError for a setting that would change ids and is not supported. A key that neither this
// program nor the list of those without effect knows is named in a warning, once.
void check_tokenizer_config(const JsonAt& config);
void check_special_tokens_map(const JsonAt& map);

}  // namespace trainer
