// Events, and the requests in which chat services and other servers take them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"

#include "net/http.h"

namespace trainer {

struct Event {
  std::string kind;                // one of notify.events
  std::string text;                // a few short lines
  std::vector<std::string> lines;  // the last ones of the log, if the run failed
  nlohmann::ordered_json values;   // all of it as JSON, without `text` and `lines`
};

// Events as the requests that chat services and other servers take.

// Returns `asked`, or for auto the format that the host of the address takes: json if it is not known.
NotifyFormat message_format(NotifyFormat asked, const std::string& address);

// Returns the event as JSON: its values, then "text" and, if there are any, "lines" and "left_out".
nlohmann::ordered_json event_json(const Event& event, int64_t left_out);

// Returns the request that posts the event. Texts are cut to what the service takes, and nothing in them
// formats the message or notifies people (@everyone). `left_out`: earlier events that were given up.
net::Request message_request(NotifyFormat format, const std::string& address, const Event& event,
                             int64_t left_out);

}  // namespace trainer
