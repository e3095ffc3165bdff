// The counts of the data report, each declared once: how the counts of two parts of the rows are put
// together, how they are stored in an index, and how they are written to data_report.json
// (docs/data-report.md explains its keys).
#include "data/report_fields.h"

#include <algorithm>
#include <concepts>
#include <functional>
#include <set>
#include <tuple>
#include <type_traits>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostCharacters = 1000;  // the report shows fewer

// The total that a count is a share of; the JSON has the share behind the count.
enum class Whole { none, rows, usable_rows, samples };
enum class InJson { always, with_target, of_chats, of_preferences, of_feedback, never };

struct Field {
  const char* name =
      "";  // in the index and in the JSON, where "unknown/count" is a key of the object "unknown"
  Whole whole = Whole::none;
  const char* note = nullptr;  // the key of the note on each named row; nullptr: no notes
  InJson shown = InJson::always;
  bool is_largest = false;  // the report has the largest of all rows; else the sum
};

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}
double supervised_share(const DataReport& report) { return share(report.supervised_tokens, report.tokens()); }

// Calls visit(field, member) for each of the fields, in the order of the JSON. What is computed from others
// is a function instead of a member.
template <class Visit>
void for_fields(std::type_identity<SideReport>, const Visit& visit) {
  visit(Field{"tokens"}, &SideReport::tokens);
  visit(Field{"lengths"}, &SideReport::lengths);
  visit(Field{"truncated/count", Whole::samples}, &SideReport::truncated);
  visit(Field{"truncated/tokens_lost"}, &SideReport::tokens_lost);
  visit(Field{"unknown/count", Whole::samples}, &SideReport::with_unknown);
  visit(Field{"unknown/tokens"}, &SideReport::unknown_tokens);
  visit(Field{"unknown/characters"}, &SideReport::unknown_characters);
  visit(Field{"empty", Whole::rows}, &SideReport::empty);
  visit(Field{.name = "longest", .shown = InJson::never, .is_largest = true}, &SideReport::longest);
}

template <class Visit>
void for_fields(std::type_identity<NothingToLearn>, const Visit& visit) {
  visit(Field{"no_answer", Whole::usable_rows}, &NothingToLearn::no_answer);
  visit(Field{"not_counted", Whole::usable_rows}, &NothingToLearn::not_counted);
  visit(Field{"cut_away", Whole::usable_rows}, &NothingToLearn::cut_away);
  visit(Field{"too_short", Whole::usable_rows}, &NothingToLearn::too_short);
}

template <class Visit>
void for_fields(std::type_identity<DataReport>, const Visit& visit) {
  visit(Field{"rows"}, &DataReport::rows);
  visit(Field{"samples"}, &DataReport::samples);
  visit(Field{"tokens"}, &DataReport::tokens);
  visit(Field{"supervised_tokens"}, &DataReport::supervised_tokens);
  visit(Field{"supervised_share"}, supervised_share);
  visit(Field{"malformed", Whole::rows, "problem"}, &DataReport::malformed);
  visit(Field{"truncated", Whole::usable_rows}, &DataReport::truncated);
  visit(Field{"dropped"}, &DataReport::dropped_rows);
  visit(Field{"split"}, &DataReport::split_rows);
  visit(Field{"unknown", Whole::usable_rows}, &DataReport::unknown);
  visit(Field{"unspelled", Whole::usable_rows}, &DataReport::unspelled);
  visit(Field{"unspelled/characters"}, &DataReport::unspelled_characters);
  visit(Field{"unused_marks", Whole::usable_rows}, &DataReport::unused_marks);
  visit(Field{"unused_marks/fields"}, &DataReport::unused_mark_fields);
  visit(Field{"doubled_ends", Whole::usable_rows}, &DataReport::doubled_ends);
  visit(Field{"duplicates", Whole::usable_rows, "same_as"}, &DataReport::duplicates);
  visit(Field{"nothing_to_learn/count", Whole::samples}, &DataReport::without_supervision);
  visit(Field{"nothing_to_learn"}, &DataReport::nothing);
  visit(Field{"empty_answers", Whole::usable_rows, nullptr, InJson::of_chats}, &DataReport::empty_answers);
  visit(Field{"conversations", Whole::none, nullptr, InJson::of_chats}, &DataReport::conversations);
  visit(Field{"equal_sides", Whole::usable_rows, nullptr, InJson::of_preferences}, &DataReport::equal_sides);
  visit(Field{"undesirable", Whole::none, nullptr, InJson::of_feedback}, &DataReport::undesirable);
  visit(Field{"input"}, &DataReport::input);
  visit(Field{"target", Whole::none, nullptr, InJson::with_target}, &DataReport::target);
  visit(Field{.name = "longest_sample", .shown = InJson::never, .is_largest = true},
        &DataReport::longest_sample);
}

template <class T>
concept Group = std::same_as<T, SideReport> || std::same_as<T, NothingToLearn> || std::same_as<T, DataReport>;

// Calls visit(field, member) for what is counted, without what is computed.
template <Group Counts, class Visit>
void for_counts(const Visit& visit) {
  for_fields(std::type_identity<Counts>(), [&](const Field& field, auto member) {
    if constexpr (std::is_member_object_pointer_v<decltype(member)>) visit(field, member);
  });
}

// Merging.

void keep_first(std::vector<NamedRow>& rows) {
  std::ranges::sort(rows, {}, [](const NamedRow& row) { return std::tuple(row.file, row.offset); });
  if (rows.size() > RowCount::kNamed) rows.resize(RowCount::kNamed);
}

void merge(const Field& field, int64_t& all, int64_t more) {
  all = field.is_largest ? std::max(all, more) : all + more;
}
void merge(const Field&, LengthCounts& all, const LengthCounts& more) { all.merge(more); }
void merge(const Field&, RowCount& all, const RowCount& more) { all.merge(more); }
void merge(const Field&, std::set<std::string>& all, const std::set<std::string>& more) {
  for (const std::string& character : more) {
    if (all.size() < kMostCharacters) all.insert(character);
  }
}
template <Group Counts>
void merge(const Field&, Counts& all, const Counts& more) {
  for_counts<Counts>([&](const Field& field, auto member) { merge(field, all.*member, more.*member); });
}

template <Group Counts>
void add_named_rows(Counts& counts, std::vector<NamedRow*>& named) {
  for_counts<Counts>([&](const Field&, auto member) {
    auto& value = counts.*member;
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (Group<Value>) {
      add_named_rows(value, named);
    } else if constexpr (std::same_as<Value, RowCount>) {
      for (NamedRow& row : value.first) named.push_back(&row);
    }
  });
}

// Storing in an index.

nlohmann::json stored(int64_t count) { return count; }
nlohmann::json stored(const std::set<std::string>& texts) { return texts; }
nlohmann::json stored(const RowCount& rows) {
  nlohmann::json first = nlohmann::json::array();
  for (const NamedRow& row : rows.first) first.push_back({row.offset, row.line});
  return {rows.count, first};
}
nlohmann::json stored(const LengthCounts& lengths) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [length, times] : lengths.counts()) list.push_back({length, times});
  return list;
}
template <Group Counts>
nlohmann::json stored(const Counts& counts) {
  nlohmann::json object;
  for_counts<Counts>([&](const Field& field, auto member) { object[field.name] = stored(counts.*member); });
  return object;
}

void load(const nlohmann::json& from, int64_t& count) { from.get_to(count); }
void load(const nlohmann::json& from, std::set<std::string>& texts) { from.get_to(texts); }
void load(const nlohmann::json& from, RowCount& rows) {
  rows.count = from.at(0);
  for (const nlohmann::json& row : from.at(1)) rows.first.push_back({.offset = row.at(0), .line = row.at(1)});
}
void load(const nlohmann::json& from, LengthCounts& lengths) {
  for (const nlohmann::json& length : from) lengths.add(length.at(0), length.at(1));
}
template <Group Counts>
void load(const nlohmann::json& from, Counts& counts) {
  for_counts<Counts>([&](const Field& field, auto member) { load(from.at(field.name), counts.*member); });
}

// Writing data_report.json.

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

class SetAsJson {
 public:
  explicit SetAsJson(const DataReport& report) : report_(report) {}

  Json all() const {
    Json json{{"name", report_.name}, {"kind", name_of(report_.kind)}, {"unit", report_.unit()}};
    if (!report_.template_date.empty()) json["template_date"] = report_.template_date;
    add(json, report_);
    return json;
  }

 private:
  template <Group Counts>
  void add(Json& json, const Counts& counts) const {
    for_fields(std::type_identity<Counts>(), [&](const Field& field, auto member) {
      if (!is_shown(field)) return;
      Json& place = json[Json::json_pointer(concat("/", field.name))];
      if constexpr (std::is_member_object_pointer_v<decltype(member)>) {
        put(place, counts.*member, field);
        if constexpr (std::same_as<decltype(member), int64_t Counts::*>)
          add_share(json, field, counts.*member);
      } else {
        place = std::invoke(member, counts);
      }
    });
  }

  bool is_shown(const Field& field) const {
    return field.shown == InJson::always || (field.shown == InJson::with_target && report_.has_target()) ||
           (field.shown == InJson::of_chats && report_.layout == DataKind::chat) ||
           (field.shown == InJson::of_preferences && report_.kind == DataKind::preference) ||
           (field.shown == InJson::of_feedback && report_.kind == DataKind::feedback);
  }

  int64_t number_of(Whole whole) const {
    return whole == Whole::samples ? report_.samples
           : whole == Whole::rows  ? report_.rows
                                   : report_.rows - report_.malformed.count;
  }

  void add_share(Json& json, const Field& field, int64_t count) const {
    if (field.whole == Whole::none) return;
    const Json::json_pointer place(concat("/", field.name));
    json[place.parent_pointer() / "share"] = share(count, number_of(field.whole));
  }

  void put(Json& place, int64_t count, const Field&) const { place = count; }
  void put(Json& place, const std::set<std::string>& texts, const Field&) const { place = texts; }
  void put(Json& place, const LengthCounts& lengths, const Field&) const { place = lengths_as_json(lengths); }
  void put(Json& place, const RowCount& rows, const Field& field) const {
    place = rows_as_json(rows, number_of(field.whole), field.note);
  }
  void put(Json& place, const NothingToLearn& nothing, const Field&) const { add(place, nothing); }
  void put(Json& place, const SideReport& side, const Field&) const {
    place["field"] = &side == &report_.input ? report_.input_field : report_.target_field;
    add(place, side);
  }

  const DataReport& report_;
};

Json pieces_as_json(const std::vector<SampleView::Piece>& pieces) {
  Json list = Json::array();
  for (const SampleView::Piece& piece : pieces) {
    list.push_back({{"text", piece.text}, {"supervised", piece.supervised}});
    if (piece.weight != 1) list.back()["weight"] = piece.weight;
  }
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
  Json json{{"train", SetAsJson(report.train).all()}};
  if (report.eval) json["eval"] = SetAsJson(*report.eval).all();
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

void RowCount::add(const NamedRow& row) {
  count++;
  if (first.size() == kNamed && row.file == first.back().file && row.offset > first.back().offset) return;
  first.push_back(row);
  keep_first(first);
}

void RowCount::merge(const RowCount& other) {
  count += other.count;
  first.insert(first.end(), other.first.begin(), other.first.end());
  keep_first(first);
}

void DataReport::merge(const DataReport& more) { trainer::merge(Field{}, *this, more); }

std::vector<NamedRow*> DataReport::named_rows() {
  std::vector<NamedRow*> named;
  add_named_rows(*this, named);
  return named;
}

nlohmann::json stored_counts(const DataReport& counts) { return stored(counts); }

DataReport counts_from(const nlohmann::json& stored) {
  DataReport counts;
  load(stored, counts);
  return counts;
}

std::string to_json_text(const RunDataReport& report) {
  const auto replace = Json::error_handler_t::replace;  // names of files need not be UTF-8
  return as_json(report).dump(2, ' ', false, replace) + "\n";
}

}  // namespace trainer
