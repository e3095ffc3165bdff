#include "data/row_index.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <unistd.h>
#include <xxhash.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "data/cache_folder.h"
#include "data/pooled_file.h"

namespace trainer {

namespace fs = std::filesystem;
namespace {

// ids | pieces | tail
struct Tail {
  char magic[16];
  uint64_t pieces, ids, hash;  // of the pieces
};
constexpr char kPiecesMagic[16] = "trainer pieces1";

uint64_t hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace

PieceStore::~PieceStore() {
  if (!writing_) return;
  try {
    delete_entry(unfinished());
  } catch (const FormatError& e) {
    log::debug(e.what());
  }
}

fs::path PieceStore::unfinished() const {
  fs::path path = path_;
  return path += concat(kUnfinished, "-", ::getpid());
}

void PieceStore::add(int64_t sample, std::span<const int32_t> ids) {
  if (given_up_) return;
  try {
    path_.empty() ? void(memory_.insert(memory_.end(), ids.begin(), ids.end())) : write(ids);
  } catch (const FormatError& e) {
    give_up(e);
    return;
  }
  pieces_.push_back({sample, ids_, hash(bytes_of(ids))});
  ids_ += ids.size();
}

void PieceStore::write(std::span<const int32_t> ids) {
  if (!writing_) {
    make_directories(path_.parent_path());
    delete_entry(unfinished());
    writing_ = std::make_unique<AppendedFile>(unfinished());
  }
  writing_->append(bytes_of(ids));
}

void PieceStore::finish() {
  if (!writing_) return;
  try {
    const std::string_view pieces = bytes_of(std::span<const Piece>(pieces_));
    Tail tail{{}, pieces_.size(), ids_, hash(pieces)};
    std::memcpy(tail.magic, kPiecesMagic, sizeof kPiecesMagic);
    writing_->append(pieces);
    writing_->append(bytes_of(std::span<const Tail>(&tail, 1)));
    writing_->sync();
    move_entry(unfinished(), path_);
    writing_.reset();
    file_ = PooledFile(path_, ExitCode::files);
  } catch (const FormatError& e) {
    give_up(e);
  }
}

void PieceStore::give_up(const std::exception& reason) {
  log::warning(concat("the pieces of split rows cannot be stored, so each piece tokenizes its row again: ",
                      reason.what(), "; set data.cache to another folder"));
  const bool unfinished_is_there = writing_ != nullptr;
  writing_.reset();
  if (unfinished_is_there) {
    try {
      delete_entry(unfinished());
    } catch (const FormatError& e) {
      log::debug(e.what());
    }
  }
  pieces_.clear();
  given_up_ = true;
}

PieceStore PieceStore::open(const fs::path& path) {
  PieceStore store;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return store;
  std::shared_ptr<const MappedFile> content;
  try {
    store.file_ = PooledFile(path, ExitCode::files);
    content = store.file_.map();
  } catch (const FormatError& e) {
    log::warning(e.what());
    return {};
  }
  mark_used(path);
  const std::string_view all = content->text();
  Tail tail{};
  if (all.size() >= sizeof tail) std::memcpy(&tail, all.data() + all.size() - sizeof tail, sizeof tail);
  const size_t most = all.size() / sizeof(int32_t);
  const bool fits = std::memcmp(tail.magic, kPiecesMagic, sizeof kPiecesMagic) == 0 && tail.pieces <= most &&
                    tail.ids <= most &&
                    tail.ids * sizeof(int32_t) + tail.pieces * sizeof(Piece) + sizeof tail == all.size();
  const std::string_view pieces =
      fits ? all.substr(tail.ids * sizeof(int32_t), tail.pieces * sizeof(Piece)) : std::string_view();
  if (!fits || hash(pieces) != tail.hash) {
    log::warning(concat(path.string(), ": is damaged; split rows are tokenized again for each piece"));
    return {};
  }
  store.ids_ = tail.ids;
  store.pieces_.resize(tail.pieces);
  std::memcpy(store.pieces_.data(), pieces.data(), pieces.size());
  return store;
}

void PieceStore::add_to(RunningChecksum& sum) const { sum.add(bytes_of(std::span<const Piece>(pieces_))); }

std::optional<std::vector<int32_t>> PieceStore::find(int64_t sample) const {
  const auto piece = std::ranges::lower_bound(pieces_, sample, {}, &Piece::sample);
  if (piece == pieces_.end() || piece->sample != sample || writing_) return std::nullopt;
  const uint64_t end = std::next(piece) == pieces_.end() ? ids_ : std::next(piece)->first;
  if (end < piece->first || end > ids_) return std::nullopt;
  const uint64_t size = end - piece->first;
  std::vector<int32_t> ids(size);
  if (file_) {
    if (!read(piece->first, ids)) return std::nullopt;
  } else {
    std::copy_n(memory_.data() + piece->first, size, ids.begin());
  }
  if (hash(bytes_of(std::span<const int32_t>(ids))) != piece->hash) return std::nullopt;
  return ids;
}

bool PieceStore::read(uint64_t first, std::span<int32_t> ids) const {
  try {
    const std::shared_ptr<const MappedFile> content = file_.map();
    if (content->size() < ids_ * sizeof(int32_t)) return false;
    std::copy_n(reinterpret_cast<const int32_t*>(content->data()) + first, ids.size(), ids.begin());
    return true;
  } catch (const FormatError& e) {
    log::debug(e.what());
    return false;
  }
}

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
    if (size_ > 0) blocks_.back().reserve(kBlock);  // where there are many files, most are small
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

bool RowIndex::add_to(RunningChecksum& samples, RunningChecksum& pieces) const {
  if (file_) samples.add(bytes_of(std::span(&at(0), static_cast<size_t>(size_))));
  for (const auto& block : blocks_) samples.add(bytes_of(std::span<const IndexedSample>(block)));
  pieces_.add_to(pieces);
  return !pieces_.empty();
}

std::optional<std::vector<int32_t>> RowIndex::piece(int64_t index) const { return pieces_.find(index); }

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
