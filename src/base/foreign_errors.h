// What libraries throw, in words of ours: no name of their functions or types and no place in their sources
// reaches a user, and no byte that a terminal would obey.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {

// Says what happened: "has a text where a number is expected", "the other side closed the connection".
std::string own_words(const std::exception& error);

// The words of the library itself, in one line, for the log at level debug.
std::string their_words(const std::exception& error);

// Returns the text as a terminal can show it: control characters, those that turn the direction of writing,
// and bytes that are no UTF-8 become escapes such as \x1b. Line breaks and tabs stay.
std::string printable(std::string_view text);

// Reads what `where` names. What a library throws on the way becomes an AnyError that begins with `where`,
// says what is wrong and ends with `advice`. Errors of ours pass, and so does lack of memory.
template <class AnyError = FormatError, class Work>
decltype(auto) in_our_words(const std::string& where, std::string_view advice, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw AnyError(concat(where, ": ", own_words(error), "; ", advice));
  }
}

}  // namespace trainer
