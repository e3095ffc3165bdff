#include "hub/blob_download.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/file_facts.h"
#include "base/threads.h"

namespace trainer::hub {
namespace {

const uint8_t* as_bytes(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

}  // namespace

namespace fs = std::filesystem;
namespace {

constexpr int64_t kMegabyte = 1 << 20;
constexpr int64_t kConnections = 8;

// The server sends the whole file, whatever was asked for.
struct RangesIgnored {};

fs::path with_ending(fs::path path, const std::string& ending) {
  path += ending;
  return path;
}

std::string range_header(int64_t begin, int64_t end) { return concat("bytes=", begin, "-", end - 1); }

}  // namespace

BlobDownload::BlobDownload(BlobSource source, Progress& progress, const std::atomic<bool>& stop)
    : source_(std::move(source)),
      progress_(progress),
      stop_(stop),
      blob_(source_.repository.blob(source_.blob)),
      size_(source_.location.size) {
  chunk_bytes_ = std::clamp(size_ / 64 / kMegabyte * kMegabyte, 2 * kMegabyte, 32 * kMegabyte);
}

void BlobDownload::run() {
  const BlobLock lock(source_.repository.lock_file(source_.blob), source_.path.text(), blob_);
  std::error_code ignored;
  if (fs::exists(blob_, ignored)) {
    progress_.add(std::max<int64_t>(size_, 0));
    return;
  }
  open_partial(lock.is_exclusive());
  if (fetch_and_check()) return finish();
  log::warning(concat(
      source_.path,
      ": what was downloaded does not have the hash that the Hugging Face Hub names; downloading it again"));
  restart();
  if (fetch_and_check()) return finish();
  restart();
  throw HubError(concat(source_.name.id, "/", source_.path, ": what ", net::origin_of(source_.location.url),
                        " sends does not have the hash that the Hugging Face Hub names, ",
                        source_.location.hash,
                        "; does a proxy change it, or is HF_ENDPOINT a damaged mirror?"));
}

// A name that no other program takes for its own unfinished download.
void BlobDownload::open_partial(bool is_exclusive) {
  const std::string ending =
      is_exclusive ? ".ranges.incomplete" : concat(".", ::getpid(), ".ranges.incomplete");
  partial_path_ = with_ending(blob_, ending);
  state_path_ = with_ending(partial_path_, ".json");
  const size_t chunks = size_ < 0 ? 1 : static_cast<size_t>((size_ + chunk_bytes_ - 1) / chunk_bytes_);
  done_.assign(std::max<size_t>(chunks, 1), false);
  if (is_exclusive && size_ >= 0) adopt_prefix();
  partial_ = std::make_unique<PartialFile>(partial_path_);
  load_state();
  require_room();
}

// Continues a download that an older huggingface_hub has begun, from the first byte on.
void BlobDownload::adopt_prefix() {
  const fs::path begun = with_ending(blob_, ".incomplete");
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(begun, error));
  if (error || bytes <= 0 || bytes > size_ || fs::exists(partial_path_, error)) return;
  move_entry(begun, partial_path_);
  for (size_t i = 0; i < done_.size(); i++) done_[i] = range_of(i).end <= bytes;
  save_state(/*at_once=*/true);
}

void BlobDownload::load_state() {
  std::error_code ignored;
  if (size_ < 0 || !fs::exists(state_path_, ignored)) return;
  try {
    const auto state = nlohmann::json::parse(read_file(state_path_));
    const auto done = state.at("done").get<std::string>();
    if (state.at("size") != size_ || state.at("chunk") != chunk_bytes_ || done.size() != done_.size()) return;
    for (size_t i = 0; i < done_.size(); i++) {
      done_[i] = done[i] == '1' && range_of(i).end <= partial_->size();
      const int64_t bytes = done_[i] ? range_of(i).end - range_of(i).begin : 0;
      progress_.add(bytes);
      counted_ += bytes;
    }
  } catch (const std::exception& error) {  // then it is downloaded from its beginning
    log::debug(concat(state_path_.string(), ": is not used: ", error.what()));
  }
}

void BlobDownload::save_state(bool at_once) {
  const auto now = std::chrono::steady_clock::now();
  if (size_ < 0 || done_.size() < 2 || (!at_once && now - saved_ < std::chrono::seconds(1))) return;
  saved_ = now;
  std::string done;
  for (const bool is_done : done_) done += is_done ? '1' : '0';
  write_atomically(state_path_,
                   nlohmann::json{{"size", size_}, {"chunk", chunk_bytes_}, {"done", done}}.dump());
}

void BlobDownload::require_room() const {
  const int64_t missing = size_ - counted_, room = free_space(blob_.parent_path());
  if (size_ < 0 || missing <= room) return;
  throw HubError(concat(source_.name.id, "/", source_.path, ": ", bytes_string(missing),
                        " are to be downloaded, but ", blob_.parent_path().string(), " has room for ",
                        bytes_string(room),
                        "; make room, or let HF_HUB_CACHE name a folder on another disk"));
}

BlobDownload::Range BlobDownload::range_of(size_t chunk) const {
  if (size_ < 0) return {0, -1};
  if (whole_only_) return {0, size_};
  const int64_t begin = static_cast<int64_t>(chunk) * chunk_bytes_;
  return {begin, std::min(begin + chunk_bytes_, size_)};
}

// Returns whether the content has its hash.
bool BlobDownload::fetch_and_check() {
  try {
    fetch_ranges();
  } catch (const RangesIgnored&) {
    log::debug(concat(source_.path, ": the server sends whole files only"));
    whole_only_ = true;
    restart();
    fetch_ranges();
  }
  if (source_.location.hash.empty()) {
    log::warning(
        concat(source_.path, ": the Hugging Face Hub names no hash of it, so that only its size is checked"));
    return true;
  }
  ContentHash hash(source_.location.hash, size_);
  std::vector<char> buffer(kMegabyte);
  for (int64_t at = 0; at < size_;) {
    const size_t bytes = partial_->read_at(at, buffer.data(), buffer.size());
    if (bytes == 0) return false;
    hash.add({buffer.data(), bytes});
    at += static_cast<int64_t>(bytes);
  }
  return hash.digits() == source_.location.hash;
}

void BlobDownload::fetch_ranges() {
  next_ = 0;
  failure_ = nullptr;
  give_up_ = false;
  {
    const int64_t missing = std::ranges::count(done_, false);
    std::vector<std::jthread> threads;
    const int64_t wanted = std::min(missing, kConnections);
    if (wanted < 2 || start_threads(threads, wanted, [this](int64_t worker) { work(worker); }) == 0) work(0);
  }
  save_state(/*at_once=*/true);
  if (failure_) std::rethrow_exception(failure_);
}

void BlobDownload::work(int64_t) {
  try {
    Server server(source_.settings, source_.name, &give_up_);
    for (;;) {
      std::unique_lock lock(mutex_);
      while (next_ < done_.size() && done_[next_]) next_++;
      if (next_ == done_.size() || give_up_) return;
      const size_t chunk = next_++;
      lock.unlock();
      fetch(server, range_of(chunk));
      lock.lock();
      done_[chunk] = true;
      save_state(/*at_once=*/false);
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void BlobDownload::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;  // the others were only stopped by it
  give_up_ = true;
}

void BlobDownload::fetch(Server& server, Range range) {
  int64_t at = range.begin, counted_from = at;
  auto since = std::chrono::steady_clock::now();
  for (int failed = 0;;) {
    const bool resumes = range.end >= 0 && !whole_only_;
    if (!resumes && at > range.begin) {  // from the beginning again
      progress_.add(range.begin - at);
      counted_ += range.begin - at;
      counted_from = at = range.begin;
    }
    std::optional<net::Response> answer;
    const std::string problem = fetch_once(server, range, at, answer);
    if (problem.empty()) break;
    // A server that sends a few bytes now and then would take for ever.
    if (resumes && static_cast<double>(at - counted_from) > Server::kLeastRate * seconds_since(since)) {
      failed = 0;
      counted_from = at;
      since = std::chrono::steady_clock::now();
    }
    if (++failed >= Server::kAttempts) {
      if (answer && !answer->is_success()) server.refuse(*answer, source_.path);
      throw HubError(concat(source_.name.id, "/", source_.path, ": ", problem, "; ", Server::kAttempts,
                            " attempts were made. What was downloaded stays: the same command resumes"));
    }
    server.wait(failed, answer ? &*answer : nullptr, concat(source_.path, ": ", problem));
  }
  if (range.end < 0) size_ = at;
}

std::string BlobDownload::fetch_once(Server& server, const Range& range, int64_t& at,
                                     std::optional<net::Response>& answer) {
  Location location;
  {
    const std::lock_guard lock(mutex_);
    location = source_.location;
  }
  if (stop_)
    throw net::NetworkError(net::NetworkError::Reason::aborted,
                            concat(source_.path, ": the download was ended"));
  if (at == range.end) return "";
  net::Request request;
  const bool is_part = range.end >= 0 && (at > 0 || range.end < size_);
  if (is_part && !whole_only_) request.headers.emplace_back("Range", range_header(at, range.end));
  request.on_body = [&, asked = at](const net::Response& head, std::string_view piece) {
    if (at == asked && is_part && !whole_only_) check_part(head, asked);
    take(range, piece, at);
  };
  try {
    answer = server.get(location, std::move(request));
  } catch (const net::NetworkError& error) {
    if (!error.is_transient()) throw;
    return error.what();
  }
  if (answer->is_success()) return range.end < 0 || at == range.end ? "" : "the connection ended too early";
  const bool is_elsewhere = net::origin_of(location.url) != net::origin_of(source_.settings.endpoint);
  if (is_elsewhere && answer->status >= 400 && answer->status < 500 && answer->status != 429) {
    relocate(server);  // addresses of stored files are valid for some time only
  } else if (!Server::is_worth_repeating(answer->status)) {
    server.refuse(*answer, source_.path);
  }
  return concat(net::origin_of(location.url), " answers ", answer->status);
}

void BlobDownload::check_part(const net::Response& head, int64_t begin) const {
  if (head.status != 206) throw RangesIgnored();
  if (!head.header("content-range").starts_with(concat("bytes ", begin, "-")))
    throw HubError(concat(source_.path, ": the server sends another range than was asked for"));
}

void BlobDownload::take(const Range& range, std::string_view piece, int64_t& at) {
  if (range.end >= 0 && at + static_cast<int64_t>(piece.size()) > range.end)
    throw HubError(
        concat(source_.path, ": the server sends more than the ", bytes_string(size_), " it announced"));
  partial_->write_at(at, piece);
  at += static_cast<int64_t>(piece.size());
  progress_.add(static_cast<int64_t>(piece.size()));
  counted_ += static_cast<int64_t>(piece.size());
}

void BlobDownload::relocate(Server& server) {
  const Location fresh = server.locate(source_.commit, source_.path);
  const std::lock_guard lock(mutex_);
  source_.location.url = fresh.url;
}

void BlobDownload::restart() {
  progress_.add(-counted_.exchange(0));
  delete_entry(state_path_);
  partial_->truncate(0);
  if (whole_only_) done_.resize(1);
  done_.assign(done_.size(), false);
  if (source_.location.size < 0) size_ = -1;
}

void BlobDownload::finish() {
  partial_->truncate(size_);
  partial_->sync();
  partial_.reset();
  move_entry(partial_path_, blob_);
  delete_entry(state_path_);
}

ContentHash::ContentHash(const CheckedName& expected, int64_t size)
    : is_sha256_(expected.text().size() == 2 * SHA256_DIGEST_SIZE) {
  sha256_init(&sha256_);
  sha1_init(&sha1_);
  if (!is_sha256_) add(concat("blob ", size, std::string_view("\0", 1)));
}

void ContentHash::add(std::string_view bytes) {
  if (is_sha256_) {
    sha256_update(&sha256_, bytes.size(), as_bytes(bytes));
  } else {
    sha1_update(&sha1_, bytes.size(), as_bytes(bytes));
  }
}

CheckedName ContentHash::digits() {
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest{};
  const size_t size = is_sha256_ ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
  is_sha256_ ? sha256_digest(&sha256_, size, digest.data()) : sha1_digest(&sha1_, size, digest.data());
  constexpr const char* kHex = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; i++) text += {kHex[digest[i] >> 4], kHex[digest[i] & 15]};
  return CheckedName::hash(text).value();
}

CheckedName name_without_hash(const CheckedName& commit, const CheckedName& path) {
  const std::string text = concat(commit, "/", path);
  const auto any_sha256 = CheckedName::hash(std::string(2 * SHA256_DIGEST_SIZE, '0'));
  ContentHash hash(any_sha256.value(), 0);
  hash.add(text);
  return hash.digits();
}

}  // namespace trainer::hub
