#include "hub/server.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <thread>

#include <nlohmann/json.hpp>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"

namespace trainer::hub {
namespace {

using Seconds = std::chrono::duration<double>;

// A listing, or the place of a file, is there after so many seconds, or never.
constexpr int kLongestPatience = 600;

std::string quoted(const std::string& text, const char* kept) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-_.~").find(c) != std::string_view::npos ||
                       std::string_view(kept).find(c) != std::string_view::npos;
    constexpr const char* kDigits = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    plain ? out += c : out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

int64_t number(const std::string& text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? stated_size(value) : -1;
}

// W/"abc" -> abc
std::string plain_etag(const std::string& header) {
  std::string etag = header.starts_with("W/") ? header.substr(2) : header;
  std::erase(etag, '"');
  return etag;
}

const char* word_of(Kind kind) { return kind == Kind::model ? "model" : "data set"; }
const char* folder_of(Kind kind) { return kind == Kind::model ? "" : "/datasets"; }
const char* api_of(Kind kind) { return kind == Kind::model ? "/api/models" : "/api/datasets"; }

std::string authority(const std::string& url) {
  return url.substr(0, url.find_first_of("/?#", url.find("://") + 3));
}

std::string how_to_log_in(const Settings& settings) {
  return concat("set HF_TOKEN to a token of your account (", settings.shown_endpoint, "/settings/tokens)");
}

// What to do about a status that has no meaning of its own at the hub: mostly something in between gives it.
std::string advice_for(const net::Response& response) {
  constexpr const char* kSomethingBetween =
      "is HF_ENDPOINT the address of a Hugging Face Hub, and does no proxy or firewall answer in its place?";
  const int status = response.status;
  if (status >= 300 && status < 400) {
    const std::string goal = net::is_address(response.redirect) ? net::origin_of(response.redirect) : "";
    return concat(goal.empty() ? "it does not say to which address; " : concat("it leads to ", goal, "; "),
                  "if the Hugging Face Hub has moved, set HF_ENDPOINT to its new address; else a proxy or a "
                  "network asks for a "
                  "log-in: open the address in a browser");
  }
  switch (status) {
    case 400:
      return concat("it does not understand the request: are the name and the revision right? Else, ",
                    kSomethingBetween);
    case 402:
      return "it asks for a payment: see the account at the Hugging Face Hub";
    case 405:
      return concat("it allows no such request (GET, HEAD) there: ", kSomethingBetween);
    case 407:
      return "a proxy asks for a name and a password: https_proxy=http://NAME:PASSWORD@HOST:PORT";
    case 410:
      return "it was removed there for good: choose another revision, or another copy of it";
    case 418:
      return concat("something takes this program for a robot and refuses it: ", kSomethingBetween,
                    " Try again later, or from another network");
    case 451:
      return "it is withheld for legal reasons, perhaps only from this country: its page at the Hugging Face "
             "Hub says "
             "why; "
             "choose another one";
    default:
      return status >= 500 || status == 408 ? concat("try again later; if it stays, ", kSomethingBetween)
                                            : kSomethingBetween;
  }
}

}  // namespace

std::string nearest_id(const std::string& id, const std::vector<std::string>& known) {
  // The same name of another owner, then what is spelt alike.
  const std::string name = id.substr(id.find('/'));
  const auto same =
      std::ranges::find_if(known, [&](const std::string& other) { return other.ends_with(name); });
  return same != known.end() ? *same : closest(id, known);
}

Server::Server(const Settings& settings, Name name, const std::atomic<bool>* abort)
    : settings_(settings), name_(std::move(name)), abort_(abort) {}

bool Server::is_worth_repeating(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

net::Request Server::request(const std::string& url) const {
  net::Request request;
  request.url = url;
  request.abort = abort_;
  request.stall_timeout = settings_.etag_timeout;
  request.least_rate = kLeastRate;
  request.bearer_token = settings_.token;
  return request;
}

void Server::wait(int failed, const net::Response* response, const std::string& reason) const {
  double seconds = 0.5 * std::pow(2, failed - 1);
  if (response != nullptr) {
    const int64_t asked = number(response->header("retry-after"));
    if (asked > 0) seconds = static_cast<double>(std::min<int64_t>(asked, 120));
  }
  log::info(concat(name_.id, ": ", reason, "; trying again in ",
                   seconds < 1 ? "a moment" : duration_string(seconds)));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    if (abort_ != nullptr && *abort_)
      throw net::NetworkError(net::NetworkError::Reason::aborted, name_.id + ": the download was ended");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

net::Response Server::send_patiently(net::Request request) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const int patience = std::max(kLongestPatience, kAttempts * settings_.etag_timeout);
  const auto until = now() + std::chrono::seconds(patience);
  for (int failed = 1;; failed++) {
    const double left = Seconds(until - now()).count();
    request.timeout = std::max(1, static_cast<int>(left));
    try {
      net::Response response = client_.send(request);
      if (!is_worth_repeating(response.status) || failed == kAttempts || now() > until) return response;
      wait(failed, &response, concat("the Hugging Face Hub answers ", response.status));
    } catch (const net::NetworkError& error) {
      // Without a network it is no use to wait for long.
      const bool is_unreachable = error.reason == net::NetworkError::Reason::unreachable;
      if (!error.is_transient() || failed == (is_unreachable ? 2 : kAttempts) || now() > until) throw;
      wait(failed, nullptr, error.what());
    }
  }
}

std::string Server::repository_url() const {
  return concat(settings_.shown_endpoint, folder_of(name_.kind), "/", name_.id);
}

Listing Server::list() {
  const std::string revision = name_.revision.empty() ? "main" : name_.revision;
  net::Request listing = request(concat(settings_.endpoint, api_of(name_.kind), "/", name_.id, "/revision/",
                                        quoted(revision, ""), "?blobs=true"));
  listing.max_redirects = 3;           // the repository may have been renamed
  listing.longest_body = 500'000'000;  // some two million files
  const net::Response response = send_patiently(listing);
  if (!response.is_success()) refuse(response, {});
  try {
    return read_listing(response.body);
  } catch (const FormatError& error) {
    throw HubError(concat(net::origin_of(response.url), " gives no list of the files of ", name_.text(), " (",
                          error.what(),
                          "); is HF_ENDPOINT right, or does a proxy or a log-in page answer in its place?"));
  }
}

Location Server::locate(const CheckedName& commit, const CheckedName& path) {
  net::Request head = request(concat(settings_.endpoint, folder_of(name_.kind), "/", name_.id, "/resolve/",
                                     commit, "/", quoted(path.text(), "/")));
  head.method = "HEAD";
  head.least_rate = 1;  // there is no body
  for (int redirects = 0; redirects < 5; redirects++) {
    const net::Response response = send_patiently(head);
    const bool redirect =
        response.status >= 300 && response.status < 400 && net::is_address(response.redirect);
    const bool elsewhere = redirect && authority(response.redirect) != authority(head.url);
    const std::string linked = response.header("x-linked-etag");
    if (redirect && !elsewhere && linked.empty()) {  // the repository was renamed
      head.url = response.redirect;
      continue;
    }
    if (!redirect && !response.is_success()) refuse(response, path);
    Location location;
    location.url = redirect ? response.redirect : head.url;
    const std::string etag = plain_etag(linked.empty() ? response.header("etag") : linked);
    location.hash = CheckedName::hash(etag).value_or(CheckedName());
    const std::string size = response.header("x-linked-size");
    location.size = number(size.empty() && !redirect ? response.header("content-length") : size);
    if (etag.empty())
      throw HubError(
          concat(net::origin_of(settings_.endpoint), " gives no ETag of ", path,
                 ", by which its content is checked; is HF_ENDPOINT right, or is a proxy in between?"));
    return location;
  }
  throw HubError(concat(net::origin_of(settings_.endpoint), ": redirects without end for ", path,
                        "; is HF_ENDPOINT right, or does a proxy ask for a log-in?"));
}

net::Response Server::get(const Location& location, net::Request request) {
  request.url = location.url;
  request.abort = abort_;
  request.max_redirects = 5;
  request.stall_timeout = settings_.download_timeout;
  request.least_rate = kLeastRate;
  if (authority(location.url) == authority(settings_.endpoint)) request.bearer_token = settings_.token;
  return client_.send(request);
}

std::string Server::did_you_mean() {
  std::vector<std::string> known = cached_ids(settings_.cache, name_.kind);
  const size_t slash = name_.id.find('/');
  for (const std::string& query : {"?limit=50&search=" + quoted(name_.id.substr(slash + 1), ""),
                                   "?limit=200&author=" + quoted(name_.id.substr(0, slash), "")}) {
    try {
      net::Request search = request(concat(settings_.endpoint, api_of(name_.kind), query));
      search.timeout = 5;
      const net::Response response = client_.send(search);
      if (!response.is_success()) continue;
      for (const auto& found : nlohmann::json::parse(response.body)) {
        const std::string id = found.at("id").get<std::string>();
        if (CheckedName::path(id)) known.push_back(id);  // it is shown
      }
    } catch (const std::exception& error) {  // it was only to help
      log::debug(concat("search for ", name_.id, ": ", error.what()));
    }
  }
  const std::string near = nearest_id(name_.id, known);
  return near.empty() || near == name_.id ? "." : concat("; did you mean ", near, "?");
}

void Server::refuse_repository() {
  const std::string what = concat(word_of(name_.kind), " ", name_.id);
  const bool has_token = !settings_.token.empty();
  throw HubError(concat("there is no ", what, " at ", net::origin_of(settings_.endpoint),
                        " and no folder of that name here", did_you_mean(),
                        has_token ? concat(" If it is private, the token in ", settings_.token_source,
                                           " must be allowed to read it")
                                  : concat(" If it is private, ", how_to_log_in(settings_))));
}

void Server::refuse(const net::Response& response, const CheckedName& path) {
  const std::string code = response.header("x-error-code"),
                    said = one_line(printable(response.header("x-error-message")), 200);
  const std::string what = concat(word_of(name_.kind), " ", name_.id),
                    server = net::origin_of(response.url.empty() ? settings_.endpoint : response.url);
  const bool has_token = !settings_.token.empty();
  const std::string how = how_to_log_in(settings_);
  const int status = response.status;
  if (code == "GatedRepo" || (status == 403 && said.find("gated") != std::string::npos)) {
    throw HubError(concat("the ", what, " is gated: visit ", repository_url(), ", accept its conditions, ",
                          has_token ? concat("with the account of the token in ", settings_.token_source,
                                             ", and see that the token may read gated repositories")
                                    : concat("and ", how)));
  }
  if (code == "RevisionNotFound")
    throw HubError(concat("the ", what, " has no revision '", name_.revision, "' at ", server, "; see ",
                          repository_url(), "/tree/main"));
  if (code == "EntryNotFound" || (status == 404 && !path.empty()))
    throw HubError(concat("the ", what, " has no file '", path, "' at ", server));
  if (status == 401 && has_token && code != "RepoNotFound")
    throw HubError(concat(server, " does not accept the token in ", settings_.token_source, " (401): ", how));
  if (code == "RepoNotFound" || status == 404 || status == 401) refuse_repository();
  if (status == 403)
    throw HubError(
        concat(server, " refuses the ", what, " (403", said.empty() ? "" : ": ", said, "); ",
               has_token ? concat("may the token in ", settings_.token_source, " read it?") : how));
  if (status == 429)
    throw HubError(concat(server, " has had too many requests (429); try again later",
                          has_token ? "" : concat(", or ", how, ", which raises the limit")));
  const std::string wanted = path.empty() ? what : concat(path, " of the ", what);
  throw HubError(concat(server, " answers ", status, said.empty() ? "" : ": ", said, " for ",
                        path.empty() ? "the " : "", wanted, "; ", advice_for(response)));
}

}  // namespace trainer::hub
