// The short codes of errors: one for each family, with a page in docs/errors.md, which `trainer help CODE`
// shows.
#pragma once

#include <string>
#include <vector>

namespace trainer {

// The general codes are for errors of which no closer family is known.
enum class ErrorCode {
  internal_error,
  installation,
  no_threads,
  usage,  // general, of the command line and the configuration
  command_line,
  config_file,
  config_key,
  config_value,
  config_conflict,
  output_exists,
  data,  // general
  data_file,
  data_row,
  data_fields,
  data_empty,
  data_limits,
  data_changed,
  parquet,
  files,  // general, of models and output
  model_files,
  model_type,
  weights_format,
  weights_fit,
  tokenizer,
  chat_template,
  adapter,
  checkpoint,
  output_dir,
  resume_changed,
  disk_full,
  export_check,
  hub,
  out_of_memory,  // general
  oom_step,
  oom_plan,
  oom_host,
  offload_room,
  no_device,  // general
  no_bf16,
  nan_steps,
  nothing_learned,
  device_fault,
  lost_rank,
};

// Returns the code as users see it: "oom-step".
std::string name_of(ErrorCode code);

// Returns the codes of all families, in the order of docs/errors.md.
const std::vector<ErrorCode>& error_codes();

}  // namespace trainer
