#include "data/row_index.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/bytes_of.h"
#include "data/cache_folder.h"

namespace trainer {
namespace {

// head | samples | summary | checksum of all that | kEnd
struct Head {
  char magic[16];
  uint64_t samples, summary_bytes;
};
static_assert(sizeof(Head) == 32 && sizeof(IndexedSample) == 40);
constexpr char kIndexMagic[16] = "trainer index 1";
constexpr size_t kChecksumDigits = 16;

std::filesystem::path pieces_of(std::filesystem::path path) { return path.replace_extension(".pieces"); }

std::string text_of(const IndexSummary& summary, const std::string& fingerprint) {
  nlohmann::json problems = nlohmann::json::array();
  for (const BadRow& row : summary.problems)
    problems.push_back({row.offset, row.length, row.line, row.problem});
  const nlohmann::json json{{"fingerprint", fingerprint},
                            {"rows", summary.rows},
                            {"bad_rows", summary.bad_rows},
                            {"problems", problems},
                            {"counts", summary.counts}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // file names need not be UTF-8
}

IndexSummary summary_of(const nlohmann::json& json) {
  IndexSummary summary;
  summary.rows = json.at("rows");
  summary.bad_rows = json.at("bad_rows");
  summary.counts = json.at("counts");
  for (const nlohmann::json& row : json.at("problems"))
    summary.problems.push_back({row.at(0), row.at(1), row.at(2), row.at(3)});
  return summary;
}

}  // namespace

std::optional<RowIndex> RowIndex::open(const std::filesystem::path& path, const std::string& fingerprint,
                                       bool mapped) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto refuse = [&](const char* reason) {
    log::warning(concat(path.string(), ": ", reason, "; it is rebuilt"));
    return std::nullopt;
  };
  try {
    RowIndex index;
    index.file_ = MappedFile::open(path);
    const std::string_view all = index.file_->text();
    Head head{};
    if (all.size() < sizeof head + kChecksumDigits) return refuse("is incomplete");
    std::memcpy(&head, all.data(), sizeof head);
    const size_t most = all.size() / sizeof(IndexedSample);
    const size_t end = all.size() - kChecksumDigits;
    if (std::memcmp(head.magic, kIndexMagic, sizeof kIndexMagic) != 0 || head.samples > most ||
        head.summary_bytes > end ||
        sizeof head + head.samples * sizeof(IndexedSample) + head.summary_bytes != end ||
        checksum(all.substr(0, end)) != all.substr(end))
      return refuse("is damaged");
    const nlohmann::json json =
        nlohmann::json::parse(all.substr(end - head.summary_bytes, head.summary_bytes));
    if (json.at("fingerprint") != fingerprint) return std::nullopt;
    index.summary_ = summary_of(json);
    index.size_ = static_cast<int64_t>(head.samples);
    index.pieces_ = PieceStore::open(pieces_of(path));
    if (!mapped) index.read_into_memory();
    mark_used(path);
    return index;
  } catch (const FormatError&) {
    return refuse("cannot be read");
  } catch (const nlohmann::json::exception&) {
    return refuse("is damaged");
  }
}

RowIndex::RowIndex(const std::filesystem::path& path) { pieces_.write_to(pieces_of(path)); }

void RowIndex::add(const IndexedSample& sample, std::span<const int32_t> piece) {
  if (!piece.empty()) pieces_.add(size_, piece);
  if (size_ % kBlock == 0) {
    blocks_.emplace_back();
    if (size_ > 0) blocks_.back().reserve(kBlock);  // of many files, most are small
  }
  blocks_.back().push_back(sample);
  size_++;
}

void RowIndex::shrink() {
  if (!blocks_.empty()) blocks_.back().shrink_to_fit();
}

void RowIndex::read_into_memory() {
  const auto* samples = &at(0);
  for (int64_t begin = 0; begin < size_; begin += kBlock)
    blocks_.emplace_back(samples + begin, samples + std::min(begin + kBlock, size_));
  file_.reset();
}

std::optional<std::vector<int32_t>> RowIndex::piece(int64_t index) const {
  return pieces_.find(index, at(index).input_tokens);
}

const IndexedSample& RowIndex::at(int64_t index) const {
  if (file_) return reinterpret_cast<const IndexedSample*>(file_->data() + sizeof(Head))[index];
  return blocks_[static_cast<size_t>(index / kBlock)][static_cast<size_t>(index % kBlock)];
}

void RowIndex::save(const std::filesystem::path& path, const std::string& fingerprint) {
  pieces_.finish();
  const std::string summary = text_of(summary_, fingerprint);
  Head head{{}, static_cast<uint64_t>(size_), summary.size()};
  std::memcpy(head.magic, kIndexMagic, sizeof kIndexMagic);
  write_to_cache(path, [&](std::ostream& out) {
    RunningChecksum sum;
    const auto put = [&](std::string_view bytes) {
      sum.add(bytes);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    };
    put(bytes_of(std::span<const Head>(&head, 1)));
    for (const auto& block : blocks_) put(bytes_of(std::span<const IndexedSample>(block)));
    put(summary);
    out << sum.digits();
  });
}

}  // namespace trainer
