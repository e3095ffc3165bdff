#include "ui/site.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"

#include "base/checksum.h"
#include "base/foreign_errors.h"
#include "ui/access.h"
#include "ui/asked.h"
#include "ui/own_program.h"
#include "ui/plan_choices.h"
#include "ui/room_for_models.h"

namespace trainer {

// The files in src/report/page and src/ui/page, embedded by cmake/Page.cmake.
namespace page_files {
extern const std::string_view parts_js, parts_css, ui_js, ui_css, ui_html;
}

namespace ui {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostOnAPage = 200, kMostCompared = 8, kMostPlans = 500;

std::string text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpResponse file(const char* type, std::string content) {
  HttpResponse response;
  response.type = concat(type, "; charset=utf-8");
  response.body = std::move(content);
  return response;
}

HttpResponse json(const Json& content, int status = 200) {
  HttpResponse response = file("application/json", text(content));
  response.status = status;
  return response;
}

int status_of(const Error& error) {
  switch (error.code()) {
    case ExitCode::usage:
      return 400;
    case ExitCode::files:
      return 404;
    default:
      return 409;
  }
}

std::string word(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

int64_t number(const HttpRequest& request, const char* name, int64_t otherwise) {
  const std::string given = word(request, name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  return !given.empty() && error == std::errc() && end == given.data() + given.size() ? value : otherwise;
}

}  // namespace

Site::Site(std::string token, std::vector<std::filesystem::path> folders)
    : token_(std::move(token)), index_(std::move(folders)) {}

bool Site::refuse(const HttpRequest& request, HttpResponse& refusal) const {
  return is_refused(request, token_, refusal);
}

HttpResponse Site::answer(const HttpRequest& request) {
  HttpResponse response;
  try {
    const std::string path = path_behind_token(request.path, token_).value_or("");
    response = request.method == "POST" ? post(path, request) : get(path, request);
  } catch (const Error& error) {
    response = json({{"error", error.what()}}, status_of(error));
  } catch (const std::exception& error) {
    response = json({{"error", own_words(error)}}, 500);
  }
  add_safe_headers(response);
  return response;
}

HttpResponse Site::get(const std::string& path, const HttpRequest& request) {
  if (path.empty()) {
    HttpResponse response = file("text/plain", "");
    response.status = 307;
    response.headers.emplace_back("Location", "/" + token_ + "/");
    return response;
  }
  if (path == "/") return file("text/html", std::string(page_files::ui_html));
  if (path == "/ui.css") return file("text/css", concat(page_files::parts_css, page_files::ui_css));
  if (path == "/ui.js") return file("text/javascript", concat(page_files::parts_js, page_files::ui_js));
  if (path == "/api/runs") return json(runs(request));
  if (path == "/api/run") return json(shown_runs(request));
  if (path == "/api/log") return json(log(request));
  if (path == "/api/chat") return json(chat_facts(request));
  if (path == "/api/choices") return json(plan_choices());
  if (path == "/api/plan") return json(plan(request));
  return json({{"error", "There is nothing under this address."}}, 404);
}

HttpResponse Site::post(const std::string& path, const HttpRequest& request) {
  const Json asked = Json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  if (!asked.is_object()) return json({{"error", "A JSON object is expected."}}, 400);
  if (path == "/api/stop") return json(stop(asked));
  if (path == "/api/chat/open") return json(talks_.open(asked));
  if (path == "/api/chat/say") return talks_.say(asked);
  if (path == "/api/chat/close") {
    talks_.close(text_in(asked, "talk"));
    return json(Json::object());
  }
  return json({{"error", "There is nothing to do under this address."}}, 404);
}

KnownRun Site::run_of(const std::string& id) {
  auto run = index_.find(id);
  if (!run) throw FormatError("This run is no longer there.");
  return std::move(*run);
}

Json Site::runs(const HttpRequest& request) {
  const auto first = static_cast<size_t>(std::max<int64_t>(0, number(request, "first", 0)));
  const auto count = static_cast<size_t>(std::clamp<int64_t>(number(request, "count", 50), 1, kMostOnAPage));
  const RunPage page = index_.page(word(request, "find"), first, count);
  Json list = Json::array();
  for (const KnownRun& run : page.runs) {
    Json shown{{"id", run.id}, {"name", run.name}};
    try {
      shown.update(to_json(index_.status(run)));
    } catch (const Error&) {
      shown["state"] = "deleted";
    }
    for (const char* kept_here : {"pid", "boot", "pid_namespace", "process_start"}) shown.erase(kept_here);
    list.push_back(std::move(shown));
  }
  return {{"version", kVersion},    {"now", std::time(nullptr)}, {"looking", page.looking},
          {"total", page.total},    {"found", page.found},       {"first", first},
          {"runs", std::move(list)}};
}

// The runs id=A&id=B; {"stamp", "same": true} if nothing has changed since the stamp of the last answer.
Json Site::shown_runs(const HttpRequest& request) {
  std::vector<KnownRun> wanted;
  const auto [begin, end] = request.query.equal_range("id");
  for (auto at = begin; at != end; at++) wanted.push_back(run_of(at->second));
  if (wanted.empty()) throw ConfigError("id: which run?");
  if (wanted.size() > kMostCompared)
    throw ConfigError(concat("at most ", kMostCompared, " runs are shown next to each other"));
  std::string stamps;
  for (const KnownRun& run : wanted) stamps += live_.stamp(run) + "\n";
  const std::string stamp = checksum(stamps);
  if (word(request, "since") == stamp) return {{"stamp", stamp}, {"same", true}};
  Json runs = Json::array();
  for (const KnownRun& run : wanted) runs.push_back(live_.run(run));
  return {
      {"stamp", stamp}, {"version", kVersion}, {"written", std::time(nullptr)}, {"runs", std::move(runs)}};
}

Json Site::log(const HttpRequest& request) {
  return read_log(run_of(word(request, "id")).path, number(request, "from", -1));
}

Json Site::chat_facts(const HttpRequest& request) {
  const ModelsOfRun models = models_of(run_of(word(request, "id")).path);
  return {{"result", models.result.string()}, {"base", models.base}, {"bytes", models.result_bytes}};
}

Json Site::plan(const HttpRequest& request) {
  const std::vector<std::string> arguments = plan_arguments(request.query);
  const std::string key = join(arguments, "\n");
  const std::scoped_lock lock(plans_);
  if (const auto known = known_plans_.find(key); known != known_plans_.end()) return known->second;
  OwnProgram program(arguments);
  program.end_input();
  Json plan = Json::parse(program.read_all(), nullptr, /*allow_exceptions=*/false);
  program.wait();
  if (!plan.is_object()) throw OutOfMemoryError(program.problem());
  std::vector<std::string> shown(arguments.begin() + 1, arguments.end());
  std::erase(shown, "--json");
  plan["command"] = shown;
  if (known_plans_.size() < kMostPlans) known_plans_.emplace(key, plan);
  return plan;
}

Json Site::stop(const Json& asked) {
  const KnownRun run = run_of(text_in(asked, "run"));
  const std::string problem = stop_run(index_.status(run));
  if (!problem.empty()) throw DataError(problem);
  return {{"told", true}};
}

}  // namespace ui
}  // namespace trainer
