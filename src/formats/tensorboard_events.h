// TensorBoard's event files: records of the TFRecord format, each a protocol buffer `Event`.
// https://github.com/tensorflow/tensorboard (tensorboard/compat/proto/event.proto, summary.proto)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

// The values of one step. record() gives the bytes that are appended to the file.
class TensorboardEvent {
 public:
  // wall_time: seconds since 1970.
  TensorboardEvent(double wall_time, int64_t step) : wall_time_(wall_time), step_(step) {}

  void add_scalar(const std::string& tag, double value);
  // TensorBoard shows it as Markdown. Bytes that are not UTF-8 become U+FFFD.
  void add_text(const std::string& tag, const std::string& text);
  // For the HPARAMS tab: numbers, booleans and strings by name.
  void add_hparams(const nlohmann::ordered_json& values);

  bool is_empty() const { return values_.empty(); }
  std::string record() const;

 private:
  double wall_time_;
  int64_t step_;
  std::string values_;  // the fields of a Summary
};

// Returns the record that a file has to begin with.
std::string tensorboard_version_record(double wall_time);
// Returns the record that says: what was written for `step` and later ones counts no more.
std::string tensorboard_start_record(double wall_time, int64_t step);

// Returns how many bytes the complete records at the beginning of a file take whose steps are at most
// `last_step`; 0 if it does not begin with a record.
int64_t bytes_up_to_step(std::string_view file, int64_t last_step);

}  // namespace trainer
