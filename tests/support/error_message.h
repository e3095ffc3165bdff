// The message of the error that a call throws. It is a test failure if the call throws nothing, or another
// type.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace trainer::test {

template <class ErrorType, class Call>
std::string error_message(const Call& call) {
  try {
    call();
  } catch (const ErrorType& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another type of error: " << e.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace trainer::test
