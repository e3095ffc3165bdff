// The address that messages are posted to. It is a secret.
#pragma once

#include <string>
#include <string_view>

#include "trainer/config/config.h"

namespace trainer {

// Returns the address that notify.webhook means, from the environment if it is the name of a variable; "" if
// there is none. Throws ConfigError, which does not show the address, if it is no address of http or https.
std::string webhook_address(const NotifyConfig& config);

// Returns what files and messages may show of notify.webhook: the name of the variable, or the address with
// "***" in place of all that follows the host.
std::string shown_webhook(const std::string& webhook);

// Returns the text with "***" in place of what follows the host in each address of http and https.
std::string without_secrets(std::string_view text);

// Returns a configuration override, "key=value", as messages may show it.
std::string shown_override(const std::string& text);

}  // namespace trainer
