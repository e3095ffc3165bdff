#include "report/report.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <set>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

namespace trainer {

// The files in src/report/page, embedded by cmake/Page.cmake.
namespace page_files {
extern const std::string_view parts_js, parts_css, report_js, report_html;
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Nothing in a script element may look like its end.
std::string for_script(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

std::string for_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The ends of the paths that tell the runs apart: "a/lr1", "a/lr2" -> "lr1", "lr2".
std::vector<std::string> names_of(const std::vector<fs::path>& directories) {
  std::vector<std::vector<std::string>> parts;
  size_t most = 1;
  for (const fs::path& directory : directories) {
    fs::path whole = fs::absolute(directory).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();
    parts.emplace_back();
    for (const fs::path& part : whole.relative_path()) parts.back().push_back(part.string());
    most = std::max(most, parts.back().size());
  }
  std::vector<std::string> names;
  for (size_t length = 1; length <= most; length++) {
    names.clear();
    for (const auto& all : parts)
      names.push_back(
          join({all.end() - static_cast<ptrdiff_t>(std::min(length, all.size())), all.end()}, "/"));
    if (std::set(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

// {{name}} in the template.
std::string filled(std::string_view page, const std::vector<std::pair<std::string, std::string>>& values) {
  std::string out;
  while (!page.empty()) {
    const size_t at = page.find("{{");
    out += page.substr(0, at);
    if (at == std::string_view::npos) break;
    const size_t end = page.find("}}", at);
    const std::string_view name = page.substr(at + 2, end - at - 2);
    out += std::ranges::find(values, name, [](const auto& value) { return value.first; })->second;
    page.remove_prefix(end + 2);
  }
  return out;
}

// "the runs in it: a, b", for a folder of runs that was given instead of a run.
void refuse_folder_of_runs(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / "metrics.jsonl", error)) return;
  std::vector<std::string> runs;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    if (fs::exists(at->path() / "metrics.jsonl", ignored)) runs.push_back(at->path().string());
  }
  if (runs.empty()) return;
  std::sort(runs.begin(), runs.end());
  throw FormatError(
      concat(directory.string(), ": holds runs, but is none itself; give the runs: ", join(runs, " ")));
}

}  // namespace

std::string report_page(const std::vector<fs::path>& directories, ReportedState state) {
  const std::vector<std::string> names = names_of(directories);
  Json runs = Json::array();
  for (size_t i = 0; i < directories.size(); i++) {
    refuse_folder_of_runs(directories[i]);
    runs.push_back(read_run(directories[i], state));
    runs.back()["name"] = names[i];
  }
  const Json data{{"version", kVersion}, {"written", std::time(nullptr)}, {"runs", std::move(runs)}};
  return filled(page_files::report_html, {{"title", for_html(join(names))},
                                          {"css", std::string(page_files::parts_css)},
                                          {"js", concat(page_files::parts_js, page_files::report_js)},
                                          {"data", for_script(data)}});
}

int64_t write_report(const std::vector<fs::path>& directories, const fs::path& file, ReportedState state) {
  const std::string page = report_page(directories, state);
  write_atomically(file, page);
  return std::ssize(page);
}

}  // namespace trainer
