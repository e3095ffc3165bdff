// Notes between ranks: how one of them has ended, as text.
#pragma once

#include <string>

#include "trainer/parallel/ranks.h"

namespace trainer {

// Returns code, family and message as one text. The rank is not in it: who reads it knows whose it is.
std::string note_of(const RankEnd& end);

// Returns what note_of() was given, with rank 0. Throws std::exception for any other text.
RankEnd end_in(const std::string& note);

}  // namespace trainer
