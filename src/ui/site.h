// The answers of the server: the page and its files, and what they ask for.
#pragma once

#include <string>

#include "ui/http/http_job.h"
#include "ui/live_runs.h"
#include "ui/run_index.h"
#include "ui/talks.h"

namespace trainer::ui {

class Site {
 public:
  // token: the first part of each path. folders: where runs are.
  Site(std::string token, std::vector<std::filesystem::path> folders);

  // Whether a request is refused; see is_refused().
  bool refuse(const HttpRequest& request, HttpResponse& refusal) const;
  // The answer to one that is not. An error is {"error": "in plain words"} with a status of its kind.
  HttpResponse answer(const HttpRequest& request);
  // Ends what would keep an answer waiting.
  void end() { talks_.close_all(); }

 private:
  HttpResponse get(const std::string& path, const HttpRequest& request);
  HttpResponse post(const std::string& path, const HttpRequest& request);
  nlohmann::ordered_json runs(const HttpRequest& request);
  nlohmann::ordered_json shown_runs(const HttpRequest& request);
  nlohmann::ordered_json log(const HttpRequest& request);
  nlohmann::ordered_json plan(const HttpRequest& request);
  nlohmann::ordered_json chat_facts(const HttpRequest& request);
  nlohmann::ordered_json stop(const nlohmann::ordered_json& asked);
  KnownRun run_of(const std::string& id);

  std::string token_;
  RunIndex index_;
  LiveRuns live_{index_};
  Talks talks_{index_, live_};
  std::mutex plans_;  // one at a time: each takes a second or more of a processor
  std::map<std::string, nlohmann::ordered_json> known_plans_;
};

}  // namespace trainer::ui
