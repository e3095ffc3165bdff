// Cases that take most of a minute: left out unless TRAINER_LONG_TESTS is set, as by test LAYER.long of
// ctest.
#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

// The first line of such a case.
#define TRAINER_LONG_CASE() \
  if (std::getenv("TRAINER_LONG_TESTS") == nullptr) GTEST_SKIP() << "takes long; scripts/test -R long"
