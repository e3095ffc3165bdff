#include "trainer/formats/run_position.h"

#include <set>

#include "trainer/base/files.h"

#include "base/checksum.h"
#include "formats/json_fields.h"
#include "formats/json_file.h"

namespace trainer {
namespace {

template <class Fields, class Position>
void position_fields(Fields& fields, Position& position) {
  fields.field("step", position.step);
  fields.field("samples_seen", position.samples_seen);
  fields.field("tokens_seen", position.tokens_seen);
  fields.field("total_steps", position.total_steps);
  fields.field("dataset_size", position.dataset_size);
  fields.field("metrics_bytes", position.metrics_bytes);
  fields.field("seconds_trained", position.seconds_trained);
  fields.field("losses_to_log", position.losses_to_log);
  fields.field("steps_to_log", position.steps_to_log);
  fields.field("evaluations_without_gain", position.evaluations_without_gain);
  fields.field("evaluation_due", position.evaluation_due);
  fields.field("bad_steps_in_a_row", position.bad_steps_in_a_row);
  fields.field("recent_losses", position.recent_losses);
  fields.field("best_metric", position.best_metric);
  fields.field("best_step", position.best_step);
  fields.field("best_by", position.best_by);
  fields.field("budgets", position.budgets);
  fields.field("fixed", position.fixed);
  fields.field("began_from", position.began_from);
}

// The checksum covers all other fields.
constexpr const char* kChecksumField = "checksum";

// Checks the checksum and removes it from `object`. Earlier versions wrote none.
void check_whole(nlohmann::ordered_json& object, const std::string& where) {
  const auto found = object.find(kChecksumField);
  if (found == object.end()) return;
  const nlohmann::ordered_json expected = *found;
  object.erase(found);
  if (expected != checksum(ascii_json(object, -1)))
    throw FormatError(concat(where, ": is damaged: its content does not match its checksum"));
}

RunPosition position_in(nlohmann::ordered_json object, const std::string& where) {
  check_whole(object, where);
  const JsonReader reader(object, where);
  RunPosition position;
  position_fields(reader, position);
  for (const char* key : {"step", "samples_seen", "total_steps", "metrics_bytes"}) {
    if (reader.required<int64_t>(key) < 0) throw FormatError(concat(where, ": ", key, ": is negative"));
  }
  if (position.step > 0 && position.dataset_size < 1)
    throw FormatError(
        concat(where, ": dataset_size: is ", position.dataset_size, ", although step is ", position.step));
  return position;
}

std::string value_of(const std::map<std::string, std::string>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "-" : found->second;
}

}  // namespace

std::string position_text(const RunPosition& position) {
  JsonFieldWriter writer;
  position_fields(writer, position);
  auto object = writer.object();
  object[kChecksumField] = checksum(ascii_json(object, -1));
  return ascii_json(object, 2) + "\n";
}

void write_position(const std::filesystem::path& directory, const RunPosition& position) {
  write_atomically(directory / kPositionFile, position_text(position));
}

RunPosition read_position(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPositionFile;
  return position_in(read_ordered_json_object(path), path.string());
}

RunPosition position_from(const std::string& text, const std::string& where) {
  return position_in(parse_json_object<nlohmann::ordered_json>(text, where), where);
}

std::vector<FixedDifference> differences(const std::map<std::string, std::string>& saved,
                                         const std::map<std::string, std::string>& now) {
  std::set<std::string> keys;
  for (const auto* values : {&saved, &now}) {
    for (const auto& [key, value] : *values) keys.insert(key);
  }
  std::vector<FixedDifference> found;
  for (const std::string& key : keys) {
    FixedDifference difference{key, value_of(saved, key), value_of(now, key)};
    // Compared as they are in the file: a path need not be UTF-8.
    if (ascii_json(difference.saved, -1) != ascii_json(difference.now, -1))
      found.push_back(std::move(difference));
  }
  return found;
}

}  // namespace trainer
