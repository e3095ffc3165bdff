// The data report as JSON; its keys are in docs/data.md.
#include <nlohmann/json.hpp>

#include "trainer/data/report.h"

#include "data/report_words.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// note: the key of the note on each named row; nullptr: no notes.
Json rows_as_json(const RowCount& rows, int64_t of, const char* note) {
  Json first = Json::array();
  for (const NamedRow& row : rows.first) {
    Json named{{"origin", row.origin}};
    if (note != nullptr) named[note] = row.note;
    first.push_back(std::move(named));
  }
  return {{"count", rows.count}, {"share", share(rows.count, of)}, {"first", std::move(first)}};
}

Json histogram_as_json(const LengthCounts& lengths) {
  Json buckets = Json::array();
  for (const LengthCounts::Bucket& bucket : lengths.histogram())
    buckets.push_back({{"from", bucket.from}, {"to", bucket.to}, {"count", bucket.count}});
  return buckets;
}

Json lengths_as_json(const LengthCounts& lengths) {
  return {{"mean", lengths.mean()},         {"p50", lengths.percentile(0.5)},
          {"p90", lengths.percentile(0.9)}, {"p99", lengths.percentile(0.99)},
          {"max", lengths.longest()},       {"histogram", histogram_as_json(lengths)}};
}

Json side_as_json(const SideReport& side, const DataReport& report, const std::string& field) {
  return {{"field", field},
          {"tokens", side.tokens},
          {"lengths", lengths_as_json(side.lengths)},
          {"truncated",
           {{"count", side.truncated},
            {"share", share(side.truncated, report.samples)},
            {"tokens_lost", side.tokens_lost}}},
          {"unknown",
           {{"count", side.with_unknown},
            {"share", share(side.with_unknown, report.samples)},
            {"tokens", side.unknown_tokens},
            {"characters", side.unknown_characters}}},
          {"empty", rows_as_json(side.empty, report.rows, nullptr)}};
}

Json set_as_json(const DataReport& report) {
  const int64_t usable = report.rows - report.malformed.count;
  Json json{{"name", report.name},
            {"kind", name_of(report.kind)},
            {"rows", report.rows},
            {"samples", report.samples},
            {"tokens", report.tokens()},
            {"supervised_tokens", report.supervised_tokens},
            {"supervised_share", share(report.supervised_tokens, report.tokens())},
            {"malformed", rows_as_json(report.malformed, report.rows, "problem")},
            {"truncated", rows_as_json(report.truncated, usable, nullptr)},
            {"dropped", report.dropped_rows},
            {"split", report.split_rows},
            {"unknown", rows_as_json(report.unknown, usable, nullptr)},
            {"duplicates", rows_as_json(report.duplicates, usable, "same_as")},
            {"nothing_to_learn",
             {{"count", report.without_supervision},
              {"share", share(report.without_supervision, report.samples)}}}};
  for (const Reason& reason : reasons(report))
    json["nothing_to_learn"][reason.key] = rows_as_json(*reason.rows, usable, nullptr);
  if (report.kind == DataKind::chat) {
    json["empty_answers"] = rows_as_json(report.empty_answers, usable, nullptr);
    json["conversations"] = lengths_as_json(report.conversations);
  }
  json["input"] = side_as_json(report.input, report, report.input_field);
  if (report.has_target()) json["target"] = side_as_json(report.target, report, report.target_field);
  return json;
}

Json pieces_as_json(const std::vector<SampleView::Piece>& pieces) {
  Json list = Json::array();
  for (const SampleView::Piece& piece : pieces)
    list.push_back({{"text", piece.text}, {"supervised", piece.supervised}});
  return list;
}

Json sample_as_json(const SampleView& sample) {
  Json json{{"origin", sample.origin},
            {"input_tokens", sample.input_tokens},
            {"supervised_tokens", sample.supervised_tokens},
            {"input", pieces_as_json(sample.input)}};
  if (sample.target.empty()) return json;
  json["target_tokens"] = sample.target_tokens;
  json["target"] = pieces_as_json(sample.target);
  return json;
}

Json as_json(const RunDataReport& report) {
  Json json{{"train", set_as_json(report.train)}};
  if (report.eval) json["eval"] = set_as_json(*report.eval);
  if (report.overlap) {
    json["overlap"] = {{"same_input", rows_as_json(report.overlap->same_input, report.eval->rows, "same_as")},
                       {"same_both", rows_as_json(report.overlap->same_both, report.eval->rows, "same_as")}};
  }
  const PaddingReport& padding = report.padding;
  json["epoch"] = {{"effective_batch_size", report.effective_batch_size},
                   {"steps", report.steps_per_epoch},
                   {"tokens", report.epoch_tokens},
                   {"supervised_tokens", report.epoch_supervised_tokens},
                   {"padding",
                    {{"share", padding.share()},
                     {"steps", padding.steps},
                     {"micro_batches", padding.micro_batches},
                     {"samples", padding.samples},
                     {"tokens", padding.tokens},
                     {"padded_tokens", padding.padded_tokens}}}};
  json["samples"] = Json::array();
  for (const SampleView& sample : report.samples) json["samples"].push_back(sample_as_json(sample));
  return json;
}

}  // namespace

std::string to_json_text(const RunDataReport& report) {
  const auto replace = Json::error_handler_t::replace;  // names of files need not be UTF-8
  return as_json(report).dump(2, ' ', false, replace) + "\n";
}

}  // namespace trainer
