#include <cstring>
#include <exception>

#include "trainer/base/ending.h"
#include "trainer/base/error.h"
#include "trainer/base/first_line.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"
#include "trainer/parallel/ranks.h"

namespace trainer {
namespace {

constexpr char kDone = '+', kFailed = '-';

std::string failure_note(ExitCode code, const std::string& message) {
  return concat(kFailed, static_cast<int>(code), " ", message);
}

// How `work` ended here: a note for the others.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const Error& error) {
    return failure_note(error.code(), error.what());
  } catch (const std::exception& error) {
    if (is_oom(error)) return failure_note(ExitCode::out_of_memory, first_line(error.what()));
    if (is_device_fault(error)) return failure_note(ExitCode::device_fault, first_line(error.what()));
    const Ending ending = ending_of(std::current_exception());
    return failure_note(static_cast<ExitCode>(ending.code), ending.message);
  }
}

// Throws the type that belongs to the exit code, because callers tell out of memory from other errors.
[[noreturn]] void throw_as(int code, const std::string& message) {
  if (code == static_cast<int>(ExitCode::out_of_memory)) throw OutOfMemoryError(message);
  if (code == static_cast<int>(ExitCode::numbers)) throw NumericsError(message);
  if (code == static_cast<int>(ExitCode::device_fault)) throw DeviceFault(message);
  throw Error(static_cast<ExitCode>(code), message);
}

[[noreturn]] void throw_failure(const std::string& note, size_t rank) {
  const size_t space = note.find(' ');
  const std::string message = note.substr(space + 1);
  throw_as(std::stoi(note.substr(1, space - 1)), rank == 0 ? message : concat("rank ", rank, ": ", message));
}

}  // namespace

std::vector<std::string> together(const Ranks& ranks, const std::function<std::string()>& work,
                                  Channel channel) {
  if (ranks.alone()) return {work()};
  std::vector<std::string> notes = ranks.exchange(outcome_of(work), channel);
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

std::vector<double> add_up(const Ranks& ranks, const std::vector<double>& values, Channel channel) {
  if (ranks.alone()) return values;
  std::vector<double> sums(values.size(), 0);
  for (const std::string& note : ranks.exchange(note_of(values), channel)) {
    const std::vector<double> given = values_in(note);
    for (size_t i = 0; i < sums.size(); i++) sums[i] += given.at(i);
  }
  return sums;
}

}  // namespace trainer
