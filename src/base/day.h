// A day as text: "2026-05-31".
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

namespace trainer {

// Returns nullopt when there is no such day.
inline std::optional<std::chrono::year_month_day> day_in(const std::string& text) {
  int year = 0;
  unsigned month = 0, day = 0;
  char more = 0;
  if (std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &more) != 3) return std::nullopt;
  const std::chrono::year_month_day found{std::chrono::year(year), std::chrono::month(month),
                                          std::chrono::day(day)};
  return found.ok() ? std::optional(found) : std::nullopt;
}

}  // namespace trainer
