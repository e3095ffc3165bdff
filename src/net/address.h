// What an URL says of its host, and what may be shown of it.
#pragma once

#include <string>
#include <string_view>

namespace trainer::net {

// "https://example.org:8000" of "https://example.org:8000/path?secret": what may be shown of an URL.
std::string origin_of(std::string_view url);

// The URL without "user:password@".
std::string without_user(std::string_view url);

// A text in which addresses may occur, with "***" in place of "user:password" in each of them.
std::string without_credentials(std::string_view text);

// Returns whether the URL is of http or https and has a host and, after it, nothing but a port and a path.
bool is_address(std::string_view url);

// Returns whether the host is this machine: an address in 127.0.0.0/8, ::1, or localhost. A name that only
// looks like one, such as 127.0.0.1.example.org, is not.
bool is_this_machine(std::string_view url);

// Returns whether nobody on the way can read what is sent there: https, or this machine.
bool keeps_secrets(std::string_view url);

}  // namespace trainer::net
