#include "ui/talks.h"

#include <algorithm>
#include <chrono>
#include <csignal>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"

#include "ui/access.h"
#include "ui/asked.h"
#include "ui/room_for_models.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kIdleSeconds = 600;
constexpr size_t kMostTalks = 3;
constexpr std::chrono::seconds kLastPiece{5};  // an answer that was stopped ends with its next piece

double running_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string line_of(const char* key, const std::string& text) {
  return Json{{key, text}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The messages of a conversation, checked: nothing else of a request reaches the program.
Json checked_messages(const Json& asked) {
  const auto given = asked.find("messages");
  if (given == asked.end() || !given->is_array() || given->empty() || given->size() > 1000)
    throw ConfigError("messages: a list of messages is needed");
  Json messages = Json::array();
  for (const Json& message : *given) {
    const std::string role = message.is_object() ? text_in(message, "role") : "";
    if (role != "system" && role != "user" && role != "assistant")
      throw ConfigError("messages: each has a role (system, user, assistant) and content");
    messages.push_back({{"role", role}, {"content", text_in(message, "content")}});
  }
  return messages;
}

std::vector<std::string> arguments_for(const std::string& model, bool converses, const std::string& device,
                                       const Json& asked) {
  std::vector<std::string> arguments{converses ? "chat" : "generate", "--model=" + model, "--json",
                                     "--device=" + device};
  if (const auto value = asked.find("temperature"); value != asked.end() && value->is_number())
    arguments.push_back(concat("--temperature=", std::clamp(value->get<double>(), 0.0, 10.0)));
  if (const auto value = asked.find("max_new_tokens"); value != asked.end() && value->is_number())
    arguments.push_back(concat("--max-new-tokens=", std::clamp<int64_t>(value->get<int64_t>(), 1, 100'000)));
  return arguments;
}

}  // namespace

// Started with the first message; again after it has ended by itself.
std::shared_ptr<OwnProgram> Talks::Side::opened() {
  const std::scoped_lock lock(starts);
  if (!program || program->has_ended()) program = std::make_shared<OwnProgram>(arguments);
  return program;
}

void Talks::Side::end(int signal) {
  const std::scoped_lock lock(starts);
  if (program) program->send(signal);
}

void Talks::Side::answer(const Json& messages, const HttpWrite& write) {
  const std::unique_lock one_at_a_time(answers, kLastPiece);
  if (!one_at_a_time) {
    write(line_of("error", "It still answers the message before."));
    return;
  }
  const auto running = opened();
  const Json row =
      converses ? Json{{"messages", messages}} : Json{{"prompt", text_in(messages.back(), "content")}};
  running->write(row.dump(-1, ' ', false, Json::error_handler_t::replace));
  bool is_heard = true;
  for (std::string line; running->read(line);) {
    const Json said = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!said.is_object()) continue;
    if (is_heard && !write(line + "\n")) {
      is_heard = false;
      running->send(SIGINT);
    }
    if (said.contains("answer") || said.contains("error")) return;
  }
  running->wait();
  const std::string problem = running->problem();
  if (is_heard) write(line_of("error", problem.empty() ? "The program that answers has ended." : problem));
}

Talks::Talks(RunIndex& index, LiveRuns& live)
    : index_(index), live_(live), reaper_([this](const std::stop_token& stop) { end_idle(stop); }) {}

Talks::~Talks() { close_all(); }

void Talks::end_idle(const std::stop_token& stop) {
  std::mutex sleeping;
  std::condition_variable_any wake;
  std::unique_lock lock(sleeping);
  while (!wake.wait_for(lock, stop, std::chrono::seconds(5), [&] { return stop.stop_requested(); })) {
    std::vector<std::shared_ptr<Talk>> ended;  // are ended without the lock
    const std::scoped_lock all(mutex_);
    for (auto talk = talks_.begin(); talk != talks_.end();) {
      if (running_seconds() - talk->second->last_word > kIdleSeconds) {
        ended.push_back(talk->second);
        talk = talks_.erase(talk);
      } else {
        talk++;
      }
    }
  }
}

Json Talks::open(const Json& asked) {
  const auto run = index_.find(text_in(asked, "run"));
  if (!run) throw FormatError("This run is no longer there.");
  const ModelsOfRun models = models_of(run->path);
  if (models.result.empty())
    throw ConfigError("The run has saved no model yet: there is nothing to chat with.");
  const auto base = asked.find("base");
  const bool with_base =
      base != asked.end() && base->is_boolean() && base->get<bool>() && !models.base.empty();
  std::string device = text_in(asked, "device", "auto");
  if (device != "auto" && device != "cpu" && device != "cuda") throw ConfigError("device: auto, cpu or cuda");
  const Room room = room_beside_runs(index_, live_, device);
  require_room(room, models.result_bytes, with_base ? models.base_bytes : 0);

  auto talk = std::make_shared<Talk>();
  talk->last_word = running_seconds();
  Json sides = Json::array();
  const auto add = [&](const char* key, const std::string& model, bool converses) {
    auto side = std::make_shared<Side>();
    side->key = key;
    side->model = model;
    side->converses = converses;
    side->arguments = arguments_for(model, converses, room.device, asked);
    sides.push_back({{"key", key}, {"model", model}, {"converses", converses}});
    talk->sides.emplace(key, std::move(side));
  };
  add("result", models.result.string(), models.result_converses);
  if (with_base) add("base", models.base, models.base_converses);
  const std::string key = new_token();
  std::vector<std::shared_ptr<Talk>> ended;
  const std::scoped_lock lock(mutex_);
  while (talks_.size() >= kMostTalks) {
    const auto oldest = std::ranges::min_element(
        talks_, {}, [](const auto& known) { return known.second->last_word.load(); });
    ended.push_back(oldest->second);
    talks_.erase(oldest);
  }
  talks_.emplace(key, std::move(talk));
  return {{"talk", key}, {"sides", sides}, {"device", room.device}, {"note", room.note}};
}

HttpResponse Talks::say(const Json& asked) {
  const Json messages = checked_messages(asked);
  std::shared_ptr<Talk> talk;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = talks_.find(text_in(asked, "talk"));
    if (found != talks_.end()) talk = found->second;
  }
  if (!talk) throw FormatError("This conversation was closed. Open it again.");
  const auto side = talk->sides.find(text_in(asked, "side"));
  if (side == talk->sides.end()) throw ConfigError("side: result or base");
  HttpResponse response;
  response.type = "application/x-ndjson";
  response.stream = [talk, side = side->second, messages](const HttpWrite& write) {
    talk->last_word = running_seconds() + kIdleSeconds;  // not while it answers
    try {
      side->answer(messages, write);
    } catch (const std::exception& problem) {
      write(line_of("error", problem.what()));
    }
    talk->last_word = running_seconds();
  };
  return response;
}

void Talks::close(const std::string& key) {
  std::shared_ptr<Talk> talk;
  const std::scoped_lock lock(mutex_);
  const auto found = talks_.find(key);
  if (found == talks_.end()) return;
  talk = found->second;
  talks_.erase(found);
  for (const auto& [name, side] : talk->sides) side->end(SIGTERM);
}

void Talks::close_all() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [key, talk] : talks_) {
    for (const auto& [name, side] : talk->sides) side->end(SIGKILL);
  }
  talks_.clear();
}

}  // namespace trainer::ui
