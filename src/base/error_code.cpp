#include "trainer/base/error_code.h"

#include <utility>

namespace trainer {
namespace {

const std::vector<std::pair<ErrorCode, const char*>> kErrorNames{
    {ErrorCode::usage, "usage"},
    {ErrorCode::command_line, "command-line"},
    {ErrorCode::config_file, "config-file"},
    {ErrorCode::config_key, "config-key"},
    {ErrorCode::config_value, "config-value"},
    {ErrorCode::config_conflict, "config-conflict"},
    {ErrorCode::output_exists, "output-exists"},
    {ErrorCode::data, "data-problem"},
    {ErrorCode::data_file, "data-file"},
    {ErrorCode::data_row, "data-row"},
    {ErrorCode::data_fields, "data-fields"},
    {ErrorCode::data_empty, "data-empty"},
    {ErrorCode::data_limits, "data-limits"},
    {ErrorCode::data_changed, "data-changed"},
    {ErrorCode::parquet, "parquet"},
    {ErrorCode::files, "files"},
    {ErrorCode::model_files, "model-files"},
    {ErrorCode::model_type, "model-type"},
    {ErrorCode::weights_format, "weights-format"},
    {ErrorCode::weights_fit, "weights-fit"},
    {ErrorCode::tokenizer, "tokenizer"},
    {ErrorCode::chat_template, "chat-template"},
    {ErrorCode::adapter, "adapter"},
    {ErrorCode::checkpoint, "checkpoint"},
    {ErrorCode::output_dir, "output-dir"},
    {ErrorCode::resume_changed, "resume-changed"},
    {ErrorCode::disk_full, "disk-full"},
    {ErrorCode::export_check, "export-check"},
    {ErrorCode::hub, "hub"},
    {ErrorCode::out_of_memory, "out-of-memory"},
    {ErrorCode::oom_step, "oom-step"},
    {ErrorCode::oom_plan, "oom-plan"},
    {ErrorCode::oom_host, "oom-host"},
    {ErrorCode::offload_room, "offload-room"},
    {ErrorCode::no_device, "no-device"},
    {ErrorCode::no_bf16, "no-bf16"},
    {ErrorCode::nan_steps, "nan-steps"},
    {ErrorCode::nothing_learned, "nothing-learned"},
    {ErrorCode::device_fault, "device-fault"},
    {ErrorCode::lost_rank, "lost-rank"},
    {ErrorCode::internal_error, "internal-error"},
    {ErrorCode::installation, "installation"},
    {ErrorCode::no_threads, "no-threads"},
};

}  // namespace

std::string name_of(ErrorCode code) {
  for (const auto& [known, name] : kErrorNames) {
    if (known == code) return name;
  }
  return "";
}

const std::vector<ErrorCode>& error_codes() {
  static const std::vector<ErrorCode> kAll = [] {
    std::vector<ErrorCode> codes;
    for (const auto& [code, name] : kErrorNames) codes.push_back(code);
    return codes;
  }();
  return kAll;
}

}  // namespace trainer
