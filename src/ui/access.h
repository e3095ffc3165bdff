// Who may see the page: whoever has its address, with the token in it, and asks from this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ui/http/http_job.h"

namespace trainer::ui {

// Returns 32 letters and digits from the system's random numbers (160 bits). Throws DeviceError if it gives
// none.
std::string new_token();

// Takes the same time wherever the texts differ.
bool is_equal_secret(std::string_view one, std::string_view other);

// Returns whether the header Host names this machine: 127.0.0.1, localhost or [::1], with any port, as a
// forwarded port has another number. A page of the internet whose name was made to lead here has its own name
// there.
bool is_local_host(std::string_view host);

// Returns the path after "/TOKEN", "/" or more; nothing if the path does not begin with it.
std::optional<std::string> path_behind_token(std::string_view path, std::string_view token);

// Returns whether the request is refused, and then fills in the answer, a plain sentence: without the token,
// by another name of this machine, sent by the page of another site, by a method other than GET, HEAD and
// POST.
bool is_refused(const HttpRequest& request, std::string_view token, HttpResponse& refusal);

// The headers of every answer: nothing from elsewhere is loaded, nothing is kept, no page frames it.
void add_safe_headers(HttpResponse& response);

}  // namespace trainer::ui
