// The time that a template is told (strftime_now).
#pragma once

#include <ctime>
#include <string>

namespace trainer::jinja {

struct Moment {
  std::tm local{};
  std::time_t seconds = 0;  // since 1970

  // The present, in the time zone of this process.
  static Moment now();
  // Midnight, when the day begins; the time zone plays no part. `day`: "2026-05-31". Throws ConfigError when
  // there is no such day.
  static Moment of_day(const std::string& day);

  // Returns "2026-05-31".
  std::string day() const;
  // Formats as Python's datetime.strftime() does without a time zone. Throws Unsupported.
  std::string formatted(const std::string& format) const;
};

}  // namespace trainer::jinja
