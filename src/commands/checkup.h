// What `trainer doctor` finds: a line each, with a verdict and what to do.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"

namespace trainer {

enum class Verdict { ok, warning, failed };

struct Finding {
  std::string name;  // "gpu", "data"
  Verdict verdict = Verdict::ok;
  std::string text;
  std::string advice;                  // what to do, of warnings and failures
  ExitCode code = ExitCode::done;      // of a failure: what the run would end with
  nlohmann::ordered_json values = {};  // for --json
};

class Checkup {
 public:
  Finding& ok(const std::string& name, const std::string& text);
  Finding& warning(const std::string& name, const std::string& text, const std::string& advice);
  Finding& failed(const std::string& name, const std::string& text, ExitCode code,
                  const std::string& advice = "");
  // A failure with the error's code and text, whose later lines are advice.
  Finding& failed(const std::string& name, const Error& error);

  const std::vector<Finding>& findings() const { return findings_; }
  // Of the first failure; done where there is none.
  ExitCode code() const;
  std::string conclusion() const;  // "ready: 9 ok, 1 warning"

  // A line each. colour: for a terminal, whose width lines are broken at; 0: they are not.
  void print_text(std::ostream& out, bool colour, size_t width) const;
  void print_json(std::ostream& out) const;

 private:
  Finding& add(Finding finding);
  std::vector<Finding> findings_;
};

}  // namespace trainer
