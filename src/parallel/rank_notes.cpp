#include "parallel/rank_notes.h"

#include <cstring>
#include <exception>
#include <optional>
#include <sstream>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"
#include "trainer/parallel/ranks.h"

#include "base/ending.h"
#include "base/text.h"

namespace trainer {
namespace {

constexpr int kNoFamily = -1;

constexpr char kDone = '+', kFailed = '-';

std::string failure_note(ExitCode code, const std::optional<ErrorCode>& family, const std::string& message) {
  return kFailed + note_of(RankEnd{0, static_cast<int>(code), message, family});
}

// Runs `work` and returns its result or its error, as a note for the other ranks.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const Error& error) {
    return failure_note(error.code(), error.family(), error.what());
  } catch (const std::exception& error) {
    if (is_oom(error)) return failure_note(ExitCode::out_of_memory, std::nullopt, oom_message(error));
    if (is_device_fault(error))
      return failure_note(ExitCode::device_fault, std::nullopt, first_line(error.what()));
    const Ending ending = ending_of(std::current_exception());
    return failure_note(static_cast<ExitCode>(ending.code), ending.family, ending.message);
  }
}

template <class AnyError>
[[noreturn]] void throw_with(const std::optional<ErrorCode>& family, AnyError error) {
  if (family) error.set_family(*family);
  throw error;
}

// Throws the type that belongs to the exit code, because callers tell out of memory from other errors.
[[noreturn]] void throw_failure(const std::string& note, size_t rank) {
  const RankEnd end = end_in(note.substr(1));
  const auto code = static_cast<ExitCode>(end.code);
  const std::string message = rank > 0 ? concat("rank ", rank, ": ", end.message) : end.message;
  if (code == ExitCode::out_of_memory) throw_with(end.family, OutOfMemoryError(message));
  if (code == ExitCode::numbers) throw_with(end.family, NumericsError(message));
  if (code == ExitCode::device_fault) throw_with(end.family, DeviceFault(message));
  throw_with(end.family, Error(code, message));
}

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

std::vector<std::string> gather_outcomes(const Ranks& ranks, const std::function<std::string()>& work,
                                         Channel channel) {
  std::vector<std::string> notes = ranks.all_gather(outcome_of(work), channel);
  for (size_t rank = 0; rank < notes.size(); rank++) {
    if (notes[rank].front() == kFailed) throw_failure(notes[rank], rank);
    notes[rank].erase(0, 1);
  }
  return notes;
}

std::string note_of(const std::vector<double>& values) {
  std::string note(values.size() * sizeof(double), '\0');
  std::memcpy(note.data(), values.data(), note.size());
  return note;
}

std::vector<double> values_in(const std::string& note) {
  std::vector<double> values(note.size() / sizeof(double));
  std::memcpy(values.data(), note.data(), values.size() * sizeof(double));
  return values;
}

std::vector<double> all_reduce(const Ranks& ranks, const std::vector<double>& values, Channel channel) {
  if (ranks.alone()) return values;
  std::vector<double> sums(values.size(), 0);
  for (const std::string& note : ranks.all_gather(note_of(values), channel)) {
    const std::vector<double> given = values_in(note);
    for (size_t i = 0; i < sums.size(); i++) sums[i] += given.at(i);
  }
  return sums;
}

}  // namespace trainer
