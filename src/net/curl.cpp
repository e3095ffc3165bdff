#include "net/curl.h"

#include <dlfcn.h>

#include "trainer/base/strings.h"

#include "net/http.h"

namespace trainer::net {
namespace {

template <class Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Curl open_curl(const std::vector<std::string>& names) {
  std::string reason;
  for (const std::string& name : names) {
    void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (reason.empty()) reason = ::dlerror();
      continue;
    }
    Curl curl;
    const bool complete = look_up(library, "curl_global_init", curl.global_init) &&
                          look_up(library, "curl_easy_init", curl.easy_init) &&
                          look_up(library, "curl_easy_setopt", curl.easy_setopt) &&
                          look_up(library, "curl_easy_perform", curl.easy_perform) &&
                          look_up(library, "curl_easy_getinfo", curl.easy_getinfo) &&
                          look_up(library, "curl_easy_reset", curl.easy_reset) &&
                          look_up(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                          look_up(library, "curl_easy_strerror", curl.easy_strerror) &&
                          look_up(library, "curl_slist_append", curl.slist_append) &&
                          look_up(library, "curl_slist_free_all", curl.slist_free_all);
    if (complete && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return curl;
    if (reason.empty()) reason = name + " is not usable";
  }
  throw NetworkError(
      NetworkError::Reason::no_library,
      concat("libcurl is not installed, which requests to servers need: apt install libcurl4 (", reason,
             ")"));
}

const Curl& curl() {
  static const Curl opened = open_curl({"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"});
  return opened;
}

}  // namespace trainer::net
