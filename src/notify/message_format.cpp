#include "notify/message_format.h"

#include <string_view>
#include <utility>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// In bytes, with room for escapes. Discord takes 2,000 characters, ntfy 4,096 bytes.
constexpr size_t kLongestText = 700, kLongestLines = 500;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool is_inside_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// At most `bytes` of UTF-8 text: the beginning, or the end.
std::string beginning_of(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t end = bytes;
  while (end > 0 && is_inside_character(text[end])) end--;
  return text.substr(0, end) + "…";
}

std::string end_of(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  size_t begin = text.size() - bytes;
  while (begin < text.size() && is_inside_character(text[begin])) begin++;
  return "…" + text.substr(begin);
}

std::string whole_text(const Event& event, int64_t left_out) {
  std::string text = beginning_of(event.text, kLongestText);
  if (left_out > 0)
    text += concat("\n(", left_out, left_out == 1 ? " earlier message was" : " earlier messages were",
                   " left out)");
  return text;
}

std::string lines_text(const Event& event) { return end_of(join(event.lines, "\n"), kLongestLines); }

std::string text_with_lines(const Event& event, int64_t left_out) {
  return whole_text(event, left_out) + (event.lines.empty() ? "" : "\n\n" + lines_text(event));
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Markdown shows the text as it is.
std::string escaped_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\*_~`|<>[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Json discord_message(const Event& event, int64_t left_out) {
  constexpr int64_t kNoPreviewsOfLinks = 4;
  std::string content = escaped_markdown(whole_text(event, left_out));
  if (!event.lines.empty()) content += "\n```\n" + replaced(lines_text(event), "`", "´") + "\n```";
  return {
      {"content", content}, {"allowed_mentions", {{"parse", Json::array()}}}, {"flags", kNoPreviewsOfLinks}};
}

Json slack_message(const Event& event, int64_t left_out) {
  std::string text = replaced(text_with_lines(event, left_out), "&", "&amp;");
  text = replaced(replaced(std::move(text), "<", "&lt;"), ">", "&gt;");
  return {{"text", text}, {"mrkdwn", false}};
}

net::Request text_request(const std::string& address, const Event& event, int64_t left_out) {
  net::Request request = net::json_post(address, text_with_lines(event, left_out));
  request.headers = {{"Content-Type", "text/plain; charset=utf-8"}};
  return request;
}

bool is_host(const std::string& host, const std::string& domain) {
  return host == domain || host.ends_with("." + domain);
}

}  // namespace

NotifyFormat message_format(NotifyFormat asked, const std::string& address) {
  if (asked != NotifyFormat::automatic) return asked;
  std::string host = net::origin_of(address);
  host = host.substr(host.find("://") + 3);
  host = host.substr(0, host.rfind(':'));
  if (is_host(host, "discord.com") || is_host(host, "discordapp.com")) return NotifyFormat::discord;
  if (is_host(host, "slack.com")) return NotifyFormat::slack;
  if (is_host(host, "ntfy.sh")) return NotifyFormat::text;
  return NotifyFormat::json;
}

Json event_json(const Event& event, int64_t left_out) {
  Json json = event.values;
  json["text"] = event.text;
  if (!event.lines.empty()) json["lines"] = event.lines;
  if (left_out > 0) json["left_out"] = left_out;
  return json;
}

net::Request message_request(NotifyFormat format, const std::string& address, const Event& event,
                             int64_t left_out) {
  switch (message_format(format, address)) {
    case NotifyFormat::discord:
      return net::json_post(address, dumped(discord_message(event, left_out)));
    case NotifyFormat::slack:
      return net::json_post(address, dumped(slack_message(event, left_out)));
    case NotifyFormat::text:
      return text_request(address, event, left_out);
    case NotifyFormat::json:
    case NotifyFormat::automatic:
      break;
  }
  return net::json_post(address, dumped(event_json(event, left_out)));
}

}  // namespace trainer
