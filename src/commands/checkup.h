// The findings of `trainer doctor`: one line each, with a verdict and advice.
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
  std::string advice;                  // what to do; for warnings and failures
  ExitCode code = ExitCode::done;      // for a failure: what the run would end with
  nlohmann::ordered_json values = {};  // for --json
};

class Checkup {
 public:
  Finding& ok(const std::string& name, const std::string& text);
  Finding& warning(const std::string& name, const std::string& text, const std::string& advice);
  Finding& failed(const std::string& name, const std::string& text, ExitCode code,
                  const std::string& advice = "");
  // Adds a failure with the code and text of the error; the lines after the first are the advice.
  Finding& failed(const std::string& name, const Error& error);

  const std::vector<Finding>& findings() const { return findings_; }
  // Returns the code of the first failure; done if there is none.
  ExitCode code() const;
  std::string conclusion() const;  // "ready: 9 ok, 1 warning"

  // Prints a line each. colour: for a terminal. Lines are wrapped at its width; 0: not wrapped.
  void print_text(std::ostream& out, bool colour, size_t width) const;
  void print_json(std::ostream& out) const;

 private:
  Finding& add(Finding finding);
  std::vector<Finding> findings_;
};

}  // namespace trainer
