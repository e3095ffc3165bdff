// libcurl, opened at run time.
#pragma once

#include <string>
#include <vector>

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION  // the newer options are missing in older libraries
#include <curl/curl.h>

namespace trainer::net {

struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// Opens the first of the libraries that the system has. Throws NetworkError when it has none.
Curl open_curl(const std::vector<std::string>& names);

// That of this process.
const Curl& curl();

}  // namespace trainer::net
