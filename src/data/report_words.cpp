#include "data/report_words.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer {

std::string percent(double share) {
  char text[32];
  const double hundredths = 100 * share;
  std::snprintf(text, sizeof text, hundredths > 0 && hundredths < 0.05 ? "<0.1 %%" : "%.1f %%", hundredths);
  return text;
}

std::string percent(int64_t part, int64_t whole) {
  return percent(whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0);
}

std::string share_of(int64_t part, int64_t whole) {
  return concat(grouped(part), " (", percent(part, whole), ")");
}

std::string counted(int64_t count, const char* what) {
  return concat(grouped(count), " ", what, count == 1 ? "" : "s");
}

std::string places(const RowCount& rows, bool twins) {
  std::vector<std::string> names;
  std::string file;  // the last one that was named
  const auto place = [&](const std::string& origin) {
    const size_t colon = origin.rfind(':');
    if (origin.substr(0, colon) == file) return origin.substr(colon);
    file = origin.substr(0, colon);
    return origin;
  };
  for (const NamedRow& row : rows.first) {
    const std::string name = place(row.origin);
    names.push_back(twins ? concat(name, " = ", place(row.note)) : name);
  }
  const int64_t more = rows.count - static_cast<int64_t>(names.size());
  return join(names) + (more > 0 ? concat(" and ", grouped(more), " more") : "");
}

std::string shown(const std::set<std::string>& characters) {
  constexpr size_t kShown = 20;
  std::string text;
  size_t number = 0;
  for (const std::string& character : characters) {
    if (number++ == kShown) return text + " …";
    text += (text.empty() ? "" : " ") + character;
  }
  return text;
}

std::string fields_text(const DataReport& report) {
  constexpr size_t kLongest = 200;
  const std::string input = one_line(report.input_field, kLongest);
  return report.target_field.empty() ? input : concat(input, " -> ", one_line(report.target_field, kLongest));
}

std::string blanks_named(const std::set<std::string>& characters) {
  constexpr size_t kShown = 20;
  const std::map<std::string, const char*> names{{"\n", "line ends"},
                                                 {"\r", "carriage returns"},
                                                 {"\t", "tabs"},
                                                 {"  ", "repeated blanks"},
                                                 {"\u00a0", "no-break spaces"}};
  std::vector<std::string> texts;
  for (const std::string& character : characters) {
    if (texts.size() == kShown) return join(texts) + " …";
    const auto name = names.find(character);
    texts.push_back(name != names.end() ? name->second : one_line(character, 10));
  }
  return join(texts);
}

std::string as_tokens(const std::set<std::string>& characters) {
  constexpr size_t kShown = 8;
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& character : characters) {
    if (list.size() < kShown) list.push_back(character);
  }
  const std::string text = list.dump();
  return list.size() < characters.size() ? text.substr(0, text.size() - 1) + ", …]" : text;
}

const char* length_key(DataKind kind, bool of_targets) {
  if (kind != DataKind::seq2seq) return "data.max_length";
  return of_targets ? "data.max_target_length" : "data.max_source_length";
}

std::string labels_text(const DataReport& report) {
  std::vector<std::string> parts;
  for (const auto& [name, rows] : report.labels) parts.push_back(concat(name, " ", grouped(rows)));
  return join_some(parts, 20);
}

const char* name_of(DataKind kind) {
  switch (kind) {
    case DataKind::seq2seq:
      return "seq2seq";
    case DataKind::completion:
      return "completion";
    case DataKind::text:
      return "text";
    case DataKind::chat:
      return "chat";
    case DataKind::preference:
      return "preference";
    case DataKind::feedback:
      return "feedback";
    case DataKind::span_corruption:
      return "span_corruption";
    case DataKind::classification:
      return "classification";
    case DataKind::pairs:
      return "pairs";
    case DataKind::automatic:
      break;
  }
  return "auto";
}

std::string date_text(const DataReport& report) {
  return concat(report.template_date, ", which the chat template writes (data.template_date)");
}

std::vector<Reason> reasons(const DataReport& report) {
  const NothingToLearn& nothing = report.nothing;
  const char* key = length_key(report.layout, /*of_targets=*/true);
  const std::string cut_away = report.layout == DataKind::completion ? concat("the prompt alone fills ", key)
                                                                     : concat(key, " cuts it all away");
  return {{"the assistant says nothing", &nothing.no_answer},
          {"no answer counts (data.loss_on, weight)", &nothing.not_counted},
          {cut_away, &nothing.cut_away},
          {"the text has one token or none", &nothing.too_short}};
}

std::string why_nothing_to_learn(const DataReport& report, int64_t max_length) {
  if (report.layout == DataKind::chat)
    return concat("no conversation has an answer that counts (data.loss_on, weight) within data.max_length (",
                  max_length, ")");
  if (report.layout != DataKind::completion) return "no text has more than one token";
  return report.truncated.count > 0
             ? concat("every prompt fills data.max_length (", max_length, ") alone; raise it")
             : "the texts are empty";
}

bool kind_has_target(DataKind kind) { return kind == DataKind::seq2seq || kind == DataKind::completion; }

bool DataReport::has_target() const {
  const bool may_be_scored = kind == DataKind::classification || kind == DataKind::pairs ||
                             kind == DataKind::preference || kind == DataKind::feedback;
  if (may_be_scored) return target.lengths.count() > 0;
  return kind_has_target(layout) || target.lengths.count() > 0;
}

std::vector<std::string> with_reasons(const RowCount& rows) {
  std::vector<std::pair<std::string, RowCount>> groups;  // in the order of their first rows
  for (const NamedRow& row : rows.first) {
    auto group = std::ranges::find(groups, row.note, &std::pair<std::string, RowCount>::first);
    if (group == groups.end()) group = groups.insert(groups.end(), {row.note, {}});
    group->second.add(row);
  }
  std::vector<std::string> lines;
  for (const auto& [reason, of_it] : groups) lines.push_back(concat(places(of_it), ": ", reason));
  return lines;
}

std::string DataReport::malformed_text() const {
  const std::vector<std::string> lines = with_reasons(malformed);
  if (malformed.count == 1) return lines.front();
  const int64_t more = malformed.count - std::ssize(malformed.first);
  const char* advice = malformed.count < rows ? " (data.bad_rows: skip leaves them out)" : "";
  return concat(grouped(malformed.count), " of ", grouped(rows), " rows cannot be used", advice, ":\n  ",
                join(lines, "\n  "), more > 0 ? concat("\n  and ", grouped(more), " more") : "");
}

const char* DataReport::input_name() const {
  if (kind == DataKind::classification || kind == DataKind::pairs) return "text";
  if (layout == DataKind::chat) return "context";
  return layout == DataKind::seq2seq ? "source" : layout == DataKind::completion ? "prompt" : name_of(kind);
}

const char* DataReport::target_name() const {
  if (layout == DataKind::chat) return "answers";
  return layout == DataKind::completion ? "completion" : "target";
}

void log_report(const std::string& start, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const bool warns = line.find("warning: ") != std::string::npos;
    (warns ? log::warning : log::info)(start + line);
  }
}

}  // namespace trainer
