// Files of log-probabilities in the cache, with what these depend on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainer {

// Numbers that were computed from the same things. They are written in one piece, and may be a part of what
// is wanted.
class ReferenceFile {
 public:
  using Facts = std::map<std::string, std::string>;

  // `made_of`: all that the numbers depend on, by name. `what`: "the reference's log-probabilities of ...".
  ReferenceFile(std::filesystem::path path, Facts made_of, std::string what);

  // Returns the numbers that are kept; none if there are none, or if they do not fit, which is then logged
  // with the reason.
  std::vector<double> read() const;
  // Replaces the file. One that cannot be written is logged once, and is no error.
  void write(const std::vector<double>& values);

  const std::filesystem::path& path() const { return path_; }
  const std::string& what() const { return what_; }

 private:
  std::filesystem::path path_;
  Facts made_of_;
  std::string what_;
  bool cannot_be_written_ = false;
};

}  // namespace trainer
