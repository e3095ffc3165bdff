#include "parallel/end_note.h"

#include <sstream>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

constexpr int kNoFamily = -1;

}  // namespace

std::string note_of(const RankEnd& end) {
  return concat(end.code, " ", end.family ? static_cast<int>(*end.family) : kNoFamily, " ", end.message);
}

RankEnd end_in(const std::string& note) {
  std::istringstream text(note);
  RankEnd end;
  int family = kNoFamily;
  text >> end.code >> family;
  end.message = note.substr(static_cast<size_t>(text.tellg()) + 1);
  if (family != kNoFamily) end.family = static_cast<ErrorCode>(family);
  return end;
}

}  // namespace trainer
