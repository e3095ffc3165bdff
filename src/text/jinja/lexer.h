// Splits a template into tokens. White space is treated as in Hugging Face: trim_blocks and lstrip_blocks.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace trainer::jinja {

struct SyntaxError : std::runtime_error {
  SyntaxError(const std::string& what, int line) : std::runtime_error(what), line(line) {}
  int line;
};

struct Token {
  enum class Type {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    integer,
    real,
    string,
    sign,
    end
  };
  Type type;
  std::string value;  // a string has neither quotes nor escapes any more
  int line;
};

// The last token has type `end`. Throws SyntaxError.
std::vector<Token> tokenize_template(const std::string& source);

}  // namespace trainer::jinja
