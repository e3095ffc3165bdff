// The data report as human-readable tables.
#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/data/report.h"
#include "trainer/data/sample_view.h"

#include "base/foreign_errors.h"
#include "base/text.h"
#include "data/report_words.h"

namespace trainer {
namespace {

constexpr size_t kHead = 300, kTail = 140;  // characters shown of a long piece
constexpr const char *kColour = "\x1b[32m", *kPlain = "\x1b[0m";

// Returns the byte offset of the end of the first `characters` characters.
size_t byte_of(const std::string& text, size_t characters) {
  size_t at = 0;
  for (; characters > 0 && at < text.size(); characters--) {
    at++;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) at++;
  }
  return at;
}

std::string shortened_piece(const std::string& piece) {
  const std::string text = one_line(piece, std::numeric_limits<size_t>::max());
  const size_t characters = count_characters(text);
  if (characters <= kHead + kTail + 40) return text;
  return concat(text.substr(0, byte_of(text, kHead)), " … (",
                grouped(static_cast<int64_t>(characters - kHead - kTail)), " characters) … ",
                text.substr(byte_of(text, characters - kTail)));
}

// Returns the lines, wrapped at `width` columns (0: one line). Supervised text is in colour, or in [[ ]].
// Control characters are escaped (\n), and the middle of a long piece is left out.
std::vector<std::string> marked_lines(const std::vector<SampleView::Piece>& pieces, const TextStyle& style,
                                      size_t width) {
  std::vector<std::string> lines{""};
  size_t column = 0;
  for (const SampleView::Piece& piece : pieces) {
    std::string text = shortened_piece(piece.text);
    if (piece.supervised && !style.colour) text = "[[" + text + "]]";
    const bool coloured = piece.supervised && style.colour;
    while (!text.empty()) {
      if (width > 0 && column == width) {
        lines.emplace_back();
        column = 0;
      }
      const size_t bytes = width > 0 ? byte_of(text, width - column) : text.size();
      const std::string part = text.substr(0, bytes);
      lines.back() += coloured ? kColour + part + kPlain : part;
      column += count_characters(part);
      text.erase(0, bytes);
    }
  }
  return lines;
}

constexpr size_t kNames = 14;  // width of the name column

class Page {
 public:
  explicit Page(const TextStyle& style) : style_(style) {}

  void heading(const std::string& text) {
    for (const std::string& line : wrapped(printable(text), style_.width)) out_ << line << '\n';
  }
  // A value that is too long continues on the next lines.
  void row(const std::string& name, const std::string& value) {
    const size_t room = style_.width > kNames + 20 ? style_.width - kNames : 0;
    entry(name, wrapped(printable(value), room));
  }
  void sample(const std::string& name, const std::vector<SampleView::Piece>& pieces) {
    const size_t room = style_.width > kNames + 20 ? style_.width - kNames : 0;
    entry(name, marked_lines(pieces, style_, room));
  }
  void line(const std::string& text = "") { out_ << text << '\n'; }
  std::string text() const { return out_.str(); }

 private:
  void entry(const std::string& name, const std::vector<std::string>& lines) {
    std::string start = "  " + name;
    for (const std::string& line : lines) {
      out_ << padded_right(start, kNames) << line << '\n';
      start.clear();
    }
  }

  const TextStyle& style_;
  std::ostringstream out_;
};

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// "none", or "12 (1.3 %): a.jsonl:3, a.jsonl:7 and 10 more"
std::string rows_text(const RowCount& rows, int64_t of, bool twins = false) {
  return rows.count == 0 ? "none" : concat(share_of(rows.count, of), ": ", places(rows, twins));
}

void add_rows(Page& page, const DataReport& report) {
  const int64_t usable = report.rows - report.malformed.count;
  page.row("rows", grouped(report.rows));
  page.row("skipped", rows_text(report.malformed, report.rows));
  for (const std::string& line : with_reasons(report.malformed)) page.row("", line);
  if (!report.template_date.empty()) page.row("date", date_text(report));
  const int64_t sides = report.kind == DataKind::preference ? 2 : 1;
  const bool changed = report.samples != sides * report.rows;
  page.row("samples", concat(grouped(report.samples), ", ", name_of(report.kind), ": ", fields_text(report)));
  if (changed && report.dropped_rows + report.split_rows > 0)
    page.row("", concat(counted(report.dropped_rows, "row"), " left out, ", grouped(report.split_rows),
                        " split, longer than ", length_key(report.layout, false)));
  if (report.kind == DataKind::preference)
    page.row("the same", concat("both answers ", rows_text(report.equal_sides, usable)));
  if (!report.labels.empty()) page.row("labels", labels_text(report));
  if (report.kind == DataKind::feedback)
    page.row("judged", concat(grouped(report.samples - report.undesirable), " good, ",
                              grouped(report.undesirable), " bad"));
  page.row("repeated", rows_text(report.duplicates, usable, true));
  page.row("empty", concat(report.input_name(), " ", rows_text(report.input.empty, usable),
                           report.has_target() ? concat("; ", report.target_name(), " ",
                                                        rows_text(report.target.empty, usable))
                                               : ""));
}

std::string unknown_text(const SideReport& side, const char* name, int64_t samples) {
  if (side.unknown_tokens == 0) return concat(name, " none");
  return concat(name, " ", grouped(side.unknown_tokens), " in ", share_of(side.with_unknown, samples), ": ",
                shown(side.unknown_characters));
}

std::string cut_text(const SideReport& side, const char* name, int64_t samples) {
  if (side.truncated == 0) return concat(name, " none");
  return concat(name, " ", share_of(side.truncated, samples), ", ", counted(side.tokens_lost, "token"),
                " lost");
}

template <class Describe>
std::string both_sides(const DataReport& report, const Describe& describe) {
  std::string text = describe(report.input, report.input_name(), report.samples);
  if (report.has_target()) text += "; " + describe(report.target, report.target_name(), report.samples);
  return text;
}

void add_tokens(Page& page, const DataReport& report) {
  page.row("truncated", both_sides(report, cut_text));
  page.row("<unk>", both_sides(report, unknown_text));
  if (report.unspelled.count > 0)
    page.row("not kept", concat(blanks_named(report.unspelled_characters), " of what is learned in ",
                                rows_text(report.unspelled, report.rows)));
  if (report.unused_marks.count > 0)
    page.row("not used",
             concat(shown(report.unused_mark_fields), " in ", rows_text(report.unused_marks, report.rows)));
  if (report.doubled_ends.count > 0)
    page.row("twice", concat("BOS or EOS, in the text and added to it: ",
                             rows_text(report.doubled_ends, report.rows)));
  page.row("supervised", concat(grouped(report.supervised_tokens), " of ", grouped(report.tokens()),
                                " tokens (", percent(report.supervised_tokens, report.tokens()), ")",
                                report.without_supervision == 0
                                    ? ", in every sample"
                                    : concat("; no trainable tokens in ",
                                             share_of(report.without_supervision, report.samples),
                                             report.without_supervision == 1 ? " sample" : " samples")));
  for (const Reason& reason : reasons(report)) {
    if (reason.rows->count > 0)
      page.row("", concat(reason.words, ": ", rows_text(*reason.rows, report.rows)));
  }
  if (report.empty_answers.count > 0)
    page.row("", concat("an empty answer, of which only the end is learned: ",
                        rows_text(report.empty_answers, report.rows)));
}

void add_numbers(Page& page, const std::string& name, const std::vector<std::string>& numbers) {
  constexpr size_t kWidths[] = {14, 9, 8, 8, 8, 9};
  std::string line = padded_right("  " + name, kNames);
  for (size_t i = 0; i < numbers.size(); i++) line += padded_left(numbers[i], kWidths[i]);
  page.line(line);
}

void add_length_numbers(Page& page, const char* name, int64_t tokens, const LengthCounts& lengths) {
  add_numbers(
      page, name,
      {grouped(tokens), one_decimal(lengths.mean()), grouped(lengths.percentile(0.5)),
       grouped(lengths.percentile(0.9)), grouped(lengths.percentile(0.99)), grouped(lengths.longest())});
}

std::string bar(int64_t count, int64_t most) {
  constexpr int64_t kWidth = 14;
  const int64_t full = (count * kWidth + most - 1) / std::max<int64_t>(most, 1);
  std::string text;
  for (int64_t i = 0; i < full; i++) text += "█";
  return padded_right(text, kWidth);
}

// The number of samples by length, inputs and targets side by side.
void add_histogram(Page& page, const DataReport& report) {
  std::map<int64_t, std::array<int64_t, 2>> counts;  // by the bucket's first length
  std::map<int64_t, int64_t> ends;
  int64_t most = 0;
  const std::array<const SideReport*, 2> sides{&report.input, &report.target};
  for (size_t side = 0; side < sides.size(); side++) {
    for (const LengthCounts::Bucket& bucket : sides[side]->lengths.histogram()) {
      counts[bucket.from][side] = bucket.count;
      ends[bucket.from] = bucket.to;
      most = std::max(most, bucket.count);
    }
  }
  const bool both = report.has_target();
  page.line(padded_right("  length", kNames) + padded_left(report.input_name(), 14) +
            (both ? std::string(15, ' ') + padded_left(report.target_name(), 14) : ""));
  for (const auto& [from, samples] : counts) {
    const std::string name =
        from == ends[from] ? grouped(from) : concat(grouped(from), "-", grouped(ends[from]));
    std::string line = padded_right("  " + name, kNames);
    for (size_t side = 0; side < (both ? 2 : 1); side++)
      line += padded_left(grouped(samples[side]), 14) + " " + bar(samples[side], most);
    line.erase(line.find_last_not_of(' ') + 1);
    page.line(line);
  }
}

void add_set(Page& page, const std::string& what, const DataReport& report) {
  page.heading(concat(what, ": ", report.name));
  add_rows(page, report);
  if (report.samples == 0) return;
  add_tokens(page, report);
  page.line();
  add_numbers(page, "", {report.unit(), "mean", "p50", "p90", "p99", "longest"});
  const auto add_side = [&](const char* name, const SideReport& side) {
    add_length_numbers(page, name, side.tokens, side.lengths);
  };
  add_side(report.input_name(), report.input);
  if (report.has_target()) add_side(report.target_name(), report.target);
  if (report.layout == DataKind::chat)
    add_length_numbers(page, "both", report.tokens(), report.conversations);
  page.line();
  add_histogram(page, report);
  page.line();
}

void add_overlap(Page& page, const RunDataReport& report) {
  const RowCount &inputs = report.overlap->same_input, &both = report.overlap->same_both;
  const DataReport& eval = *report.eval;
  page.heading("evaluation data that are in the training data");
  page.row("same input", rows_text(inputs, eval.rows, true));
  if (eval.has_target()) page.row("both", rows_text(both, eval.rows, true));
  page.line();
}

void add_epoch(Page& page, const RunDataReport& report) {
  const PaddingReport& padding = report.padding;
  page.heading("an epoch");
  page.row("steps",
           concat(grouped(report.steps_per_epoch), " of ", counted(report.effective_batch_size, "sample")));
  page.row("tokens", concat(grouped(report.epoch_tokens), ", ", grouped(report.epoch_supervised_tokens),
                            " of them supervised"));
  page.row("padding",
           concat(percent(padding.share()), " of what is computed, in ", grouped(padding.micro_batches),
                  padding.micro_batches == 1 ? " micro-batch" : " micro-batches", " of ",
                  counted(padding.steps, "step")));
  page.line();
}

void add_sample(Page& page, const SampleView& sample, const DataReport& report) {
  const int64_t tokens = sample.input_tokens + sample.target_tokens;
  page.line(concat("  ", sample.origin, "  ", counted(tokens, "token"), ", ",
                   grouped(sample.supervised_tokens), " of them supervised"));
  page.sample(sample.target.empty() ? "" : report.input_name(), sample.input);
  if (!sample.target.empty()) page.sample(report.target_name(), sample.target);
}

void add_samples(Page& page, const RunDataReport& report, const TextStyle& style) {
  page.heading(concat("the first samples, as the model sees them; what it learns is ",
                      style.colour ? "in colour" : "in [[ ]]"));
  for (const SampleView& sample : report.samples) add_sample(page, sample, report.train);
}

}  // namespace

std::vector<std::string> sample_lines(const SampleView& sample, const DataReport& report,
                                      const TextStyle& style) {
  Page page(style);
  add_sample(page, sample, report);
  std::istringstream text(page.text());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string to_text(const RunDataReport& report, const TextStyle& style) {
  Page page(style);
  add_set(page, "training data", report.train);
  if (report.eval) add_set(page, "evaluation data", *report.eval);
  if (report.overlap) add_overlap(page, report);
  add_epoch(page, report);
  add_samples(page, report, style);
  return page.text();
}

namespace {

using Pieces = std::vector<SampleView::Piece>;

// Returns where the text of the first tokens ends in the text of all tokens, at a character boundary. Decoded
// alone, the first tokens may give a different end, when a token holds part of a character.
size_t end_of(std::span<const int32_t> first, const std::string& whole, const Tokenizer& tokenizer) {
  const std::string alone = tokenizer.decode(first, /*skip_special_tokens=*/false);
  auto end = static_cast<size_t>(std::ranges::mismatch(alone, whole).in2 - whole.begin());
  while (end > 0 && end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xc0) == 0x80) end--;
  return end;
}

// labels: as long as ids. weights: of the labels; empty: all are 1.
Pieces tokens_of(std::span<const int32_t> ids, std::span<const int32_t> labels,
                 std::span<const float> weights, const Tokenizer& tokenizer) {
  Pieces pieces;
  const std::string whole = tokenizer.decode(ids, /*skip_special_tokens=*/false);
  size_t begin = 0;
  for (size_t at = 0; at < ids.size();) {
    const auto weight_of = [&](size_t i) {
      return labels[i] == kIgnore ? 0.0f : weights.empty() ? 1.0f : weights[i];
    };
    const bool supervised = labels[at] != kIgnore;
    const float weight = weight_of(at);
    while (at < ids.size() && (labels[at] != kIgnore) == supervised && weight_of(at) == weight) at++;
    const size_t end =
        at == ids.size() ? whole.size() : std::max(begin, end_of(ids.first(at), whole, tokenizer));
    pieces.push_back({whole.substr(begin, end - begin), supervised, supervised ? weight : 1.0f});
    begin = end;
  }
  return pieces;
}

}  // namespace

SampleView view_of(const Sample& sample, bool encoder_decoder, const std::string& origin,
                   const Tokenizer& tokenizer) {
  SampleView view;
  view.origin = origin;
  view.input_tokens = static_cast<int64_t>(sample.input_ids.size());
  view.supervised_tokens = supervised_tokens(sample, encoder_decoder);
  if (!encoder_decoder) {
    std::vector<int32_t> labels = sample.labels;
    if (!labels.empty()) labels.front() = kIgnore;  // nothing predicts it
    view.input = tokens_of(sample.input_ids, labels, sample.weights, tokenizer);
    return view;
  }
  const std::vector<int32_t> none(sample.input_ids.size(), kIgnore);
  view.input = tokens_of(sample.input_ids, none, {}, tokenizer);
  std::vector<int32_t> target = sample.labels;
  std::erase(target, kIgnore);
  std::vector<float> weights;
  for (size_t i = 0; i < sample.weights.size(); i++)
    if (sample.labels[i] != kIgnore) weights.push_back(sample.weights[i]);
  view.target = tokens_of(target, target, weights, tokenizer);
  view.target_tokens = static_cast<int64_t>(target.size());
  return view;
}

}  // namespace trainer
