#include "text/jinja/moment.h"

#include <chrono>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/day.h"
#include "text/jinja/value.h"

namespace trainer::jinja {
namespace {

// A time without a zone, as Hugging Face asks for it, has neither name nor offset of one. The seconds since
// 1970 are written here, because the C library would compute them with the zone of this process.
std::string without_zone(const std::string& format, std::time_t seconds) {
  std::string out;
  for (size_t at = 0; at < format.size(); at++) {
    out += format[at];
    if (format[at] != '%' || ++at == format.size()) continue;
    const char letter = format[at];
    if (letter == 'f') throw Unsupported("microseconds (%f) in strftime_now()");
    if (letter == 'z' || letter == 'Z') {
      out.pop_back();
    } else if (letter == 's') {
      out.pop_back();
      out += std::to_string(seconds);
    } else {
      out += letter;
    }
  }
  return out;
}

}  // namespace

Moment Moment::now() {
  Moment moment;
  moment.seconds = std::time(nullptr);
  localtime_r(&moment.seconds, &moment.local);
  return moment;
}

Moment Moment::of_day(const std::string& day) {
  const auto date = day_in(day);
  if (!date) throw ConfigError(concat("'", day, "' is no day; write one as 2026-05-31"));
  Moment moment;
  // Not as a time_point of the system's clock, which ends in 2262.
  moment.seconds = std::chrono::sys_seconds(std::chrono::sys_days(*date)).time_since_epoch().count();
  ::gmtime_r(&moment.seconds, &moment.local);
  return moment;
}

std::string Moment::day() const {
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &local)};
}

std::string Moment::formatted(const std::string& format) const {
  const std::string zoneless = without_zone(format, seconds);
  if (zoneless.empty()) return "";
  std::string out(zoneless.size() * 64 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), zoneless.c_str(), &local));
  return out;
}

}  // namespace trainer::jinja
