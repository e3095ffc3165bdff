#include "data/big_numbers.h"

#include "trainer/base/strings.h"

#include "text/tokenizer/json_reader.h"

namespace trainer {

std::string with_big_numbers_as_objects(std::string_view json) {
  std::string out;
  size_t at = 0;
  while (const auto number = number_beyond_64_bits(json, at)) {
    const size_t begin = static_cast<size_t>(number->begin() - json.begin());
    out += concat(json.substr(at, begin - at), "{\"\\u0001number\":\"", *number, "\"}");
    at = begin + number->size();
  }
  out += json.substr(at);
  return out;
}

}  // namespace trainer
