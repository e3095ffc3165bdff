// Events as the requests that chat services and other servers take.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"

#include "net/http.h"
#include "notify/event.h"

namespace trainer {

// Returns `asked`, or for auto the format that the host of the address takes: json if it is not known.
NotifyFormat message_format(NotifyFormat asked, const std::string& address);

// Returns the event as JSON: its values, then "text" and, if there are any, "lines" and "left_out".
nlohmann::ordered_json event_json(const Event& event, int64_t left_out);

// Returns the request that posts the event. Texts are cut to what the service takes, and nothing in them
// formats the message or notifies people (@everyone). `left_out`: earlier events that were given up.
net::Request message_request(NotifyFormat format, const std::string& address, const Event& event,
                             int64_t left_out);

}  // namespace trainer
