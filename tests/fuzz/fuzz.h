// What the fuzzing targets share. A target gets arbitrary bytes as the content of a file and reads it as the
// program would. The program's own errors are fine. Words of a library in one, any other exception, a crash,
// a hang and running out of memory are bugs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trainer/base/error.h"

#include "support/hostile_json.h"

// Defined by each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trainer::fuzz {

// A folder of this process, gone at its end.
const std::filesystem::path& scratch();
// A file in it with these bytes.
std::filesystem::path put(const std::filesystem::path& name, std::string_view bytes);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process, with what is wrong on stderr, if anything is.
void require_none(const std::string& wrong, std::string_view message);

// Ends the process if a message has another library's words. The input may have such words itself, as in a
// name that an error repeats. Control bytes are made visible where a message is printed.
void require_own_words(std::string_view input, std::string_view message);

// Calls it; the program's own errors, in its own words, are what a bad file should give.
template <class Call>
void accept_errors(std::string_view input, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    require_own_words(input, error.what());
  }
}

}  // namespace trainer::fuzz
