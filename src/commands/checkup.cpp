#include "commands/checkup.h"

#include <algorithm>

#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "base/text.h"

namespace trainer {
namespace {

constexpr size_t kNameColumn = 9, kTextColumn = 23;  // columns of "warning  environment   ..."

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::ok ? "ok" : verdict == Verdict::warning ? "warning" : "failed";
}

const char* verdict_colour(Verdict verdict) {
  return verdict == Verdict::ok ? "\x1b[32m" : verdict == Verdict::warning ? "\x1b[33m" : "\x1b[1;31m";
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

void print_finding(const Finding& finding, std::ostream& out, bool colour, size_t width) {
  const size_t room = width > kTextColumn + 20 ? width - kTextColumn - 3 : 0;
  const std::string margin(kTextColumn, ' ');
  if (colour) out << verdict_colour(finding.verdict);
  out << padded(verdict_name(finding.verdict), kNameColumn) << (colour ? "\x1b[0m" : "")
      << padded(finding.name, kTextColumn - kNameColumn);
  const char* separator = "";
  for (const std::string& line : wrapped(printable(finding.text), room)) {
    out << separator << line << '\n';
    separator = margin.c_str();
  }
  const char* start = "-> ";
  for (const std::string& line : wrapped(printable(finding.advice), room)) {
    out << margin << start << line << '\n';
    start = "   ";
  }
}

std::string counted(size_t count, const char* what) {
  return concat(count, " ", what, count > 1 && std::string(what) == "warning" ? "s" : "");
}

}  // namespace

Finding& Checkup::add(Finding finding) {
  findings_.push_back(std::move(finding));
  return findings_.back();
}

Finding& Checkup::ok(const std::string& name, const std::string& text) {
  return add({name, Verdict::ok, text, "", ExitCode::done, {}});
}

Finding& Checkup::warning(const std::string& name, const std::string& text, const std::string& advice) {
  return add({name, Verdict::warning, text, advice, ExitCode::done, {}});
}

Finding& Checkup::failed(const std::string& name, const std::string& text, ExitCode code,
                         const std::string& advice) {
  return add({name, Verdict::failed, text, advice, code, {}});
}

Finding& Checkup::failed(const std::string& name, const Error& error) {
  return failed(name, error.what(), error.code());
}

ExitCode Checkup::code() const {
  const auto first = std::ranges::find(findings_, Verdict::failed, &Finding::verdict);
  return first == findings_.end() ? ExitCode::done : first->code;
}

std::string Checkup::conclusion() const {
  std::vector<std::string> counts;
  for (const Verdict verdict : {Verdict::failed, Verdict::warning, Verdict::ok}) {
    const auto count = static_cast<size_t>(std::ranges::count(findings_, verdict, &Finding::verdict));
    if (count > 0) counts.push_back(counted(count, verdict_name(verdict)));
  }
  return concat(code() == ExitCode::done ? "ready: " : "not ready: ", join(counts));
}

void Checkup::print_text(std::ostream& out, bool colour, size_t width) const {
  for (const Finding& finding : findings_) print_finding(finding, out, colour, width);
  out << conclusion() << '\n';
}

void Checkup::print_json(std::ostream& out) const {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings_) {
    nlohmann::ordered_json check{
        {"name", finding.name}, {"verdict", verdict_name(finding.verdict)}, {"text", finding.text}};
    if (!finding.advice.empty()) check["advice"] = finding.advice;
    if (finding.verdict == Verdict::failed) check["exit_code"] = static_cast<int>(finding.code);
    if (!finding.values.is_null()) check.update(finding.values);
    checks.push_back(std::move(check));
  }
  const nlohmann::ordered_json report{{"ready", code() == ExitCode::done},
                                      {"exit_code", static_cast<int>(code())},
                                      {"checks", std::move(checks)}};
  const auto replace =
      nlohmann::ordered_json::error_handler_t::replace;  // names of processes need not be UTF-8
  out << report.dump(2, ' ', false, replace) << '\n';
}

}  // namespace trainer
