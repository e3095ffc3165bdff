#include "data/piece_store.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unistd.h>
#include <xxhash.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "data/bytes_of.h"
#include "data/cache_folder.h"

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

std::optional<std::vector<int32_t>> PieceStore::find(int64_t sample, size_t size) const {
  const auto piece = std::ranges::lower_bound(pieces_, sample, {}, &Piece::sample);
  if (piece == pieces_.end() || piece->sample != sample || writing_) return std::nullopt;
  if (piece->first + size > ids_) return std::nullopt;
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

}  // namespace trainer
