// Writes files; trainer/base/files.h has the guarantees.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <streambuf>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/file_calls.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path, const char* what, int error = errno) {
  const char* reason = error == EFBIG ? "the file size limit is reached (ulimit -f)" : std::strerror(error);
  FormatError failure(concat(path.string(), ": cannot be ", what, ": ", reason));
  if (calls::is_lack_of_room(error)) failure.set_family(ErrorCode::disk_full);
  throw failure;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Writes all of the data. Returns 0 or the errno.
int write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = calls::write(fd, data, size);
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return 0;
}

// Some network file systems cannot sync a folder and report EINVAL; there is nothing more to do then.
bool is_synced(int fd) { return calls::sync(fd) == 0 || errno == EINVAL; }

// A stream buffer for a new file. Small pieces are buffered, large ones are written directly.
class NewFile : public std::streambuf {
 public:
  // `shown`: the path in messages.
  NewFile(const fs::path& path, fs::path shown)
      : shown_(std::move(shown)),
        fd_(calls::open(path, O_WRONLY | O_CREAT | O_TRUNC)),
        buffer_(kBufferBytes) {
    if (fd_ < 0) fail(shown_, "written");
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }
  ~NewFile() override {
    if (fd_ >= 0) calls::close(fd_);
  }

  // Everything is on the disk when this returns.
  void finish() {
    drain();
    if (ends_in_hole_ && calls::truncate(fd_, written_) != 0) fail(shown_, "written");
    if (!is_synced(fd_)) fail(shown_, "written");
    if (calls::close(std::exchange(fd_, -1)) != 0) fail(shown_, "written");
  }

 protected:
  int_type overflow(int_type c) override {
    drain();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }

  std::streamsize xsputn(const char* data, std::streamsize size) override {
    if (size < epptr() - pptr()) {
      std::memcpy(pptr(), data, static_cast<size_t>(size));
      pbump(static_cast<int>(size));
    } else {
      drain();
      put(data, static_cast<size_t>(size));
    }
    return size;
  }

  int sync() override {
    drain();
    return 0;
  }

  pos_type seekoff(off_type offset, std::ios::seekdir from, std::ios::openmode) override {
    if (offset < 0 || from != std::ios::cur) return pos_type(off_type(-1));
    if (offset > 0) leave_out(offset);
    return pos_type(written_ + (pptr() - pbase()));
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 18;

  void leave_out(off_type size) {
    drain();
    if (::lseek(fd_, size, SEEK_CUR) < 0) fail(shown_, "written");
    written_ += size;
    ends_in_hole_ = true;
  }
  void put(const char* data, size_t size) {
    if (size > 0) ends_in_hole_ = false;
    if (const int error = write_all(fd_, data, size); error != 0) fail(shown_, "written", error);
    written_ += static_cast<off_type>(size);
  }
  void drain() {
    const size_t size = static_cast<size_t>(pptr() - pbase());
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    put(buffer_.data(), size);
  }

  fs::path shown_;
  int fd_;
  std::vector<char> buffer_;
  off_type written_ = 0;
  bool ends_in_hole_ = false;
};

// Removes an entry without following links; returns false and sets errno on failure.
bool remove_quietly(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT || errno == ENOTDIR;
  if (!S_ISDIR(info.st_mode)) return calls::unlink(path) == 0 || errno == ENOENT;
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  for (const fs::path& entry : entries) {
    if (!remove_quietly(entry)) return false;
  }
  if (error) errno = error.value();
  return !error && (calls::rmdir(path) == 0 || errno == ENOENT);
}

}  // namespace

void write_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  fs::path temporary = path;
  temporary += ".tmp";
  try {
    {
      NewFile file(temporary, path);
      std::ostream out(&file);
      out.exceptions(std::ios::badbit | std::ios::failbit);
      write(out);
      file.finish();
    }
    if (calls::rename(temporary, path) != 0) fail(path, "written");
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sync_entry(folder_of(path));
}

void write_atomically(const fs::path& path, std::string_view content) {
  write_atomically(path, [&](std::ostream& out) {
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  });
}

AppendedFile::AppendedFile(fs::path path)
    : path_(std::move(path)), fd_(calls::open(path_, O_WRONLY | O_CREAT | O_APPEND)) {
  if (fd_ < 0) fail(path_, "written");
}

AppendedFile::~AppendedFile() { calls::close(fd_); }

void AppendedFile::append(std::string_view line) {
  const int64_t before = size();
  const int error = write_all(fd_, line.data(), line.size());
  if (error == 0) return;
  // If this fails as well, a partial line remains; readers skip it.
  if (size() > before) calls::truncate(fd_, before);
  fail(path_, "written", error);
}

int64_t AppendedFile::size() const {
  struct stat info {};
  return ::fstat(fd_, &info) == 0 ? info.st_size : 0;
}

void AppendedFile::sync() {
  if (!is_synced(fd_)) fail(path_, "written");
}

void AppendedFile::truncate(int64_t size) {
  if (calls::truncate(fd_, size) != 0) fail(path_, "shortened");
}

void make_directories(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return;
  make_directories(path.has_filename() ? path.parent_path() : path.parent_path().parent_path());
  if (calls::mkdir(path) != 0 && !(errno == EEXIST && fs::is_directory(path, error))) fail(path, "made");
  sync_entry(folder_of(path.has_filename() ? path : path.parent_path()));
}

void move_entry(const fs::path& from, const fs::path& to) {
  if (calls::rename(from, to) != 0)
    throw FormatError(
        concat(from.string(), ": cannot be renamed to ", to.string(), ": ", std::strerror(errno)));
  sync_entry(folder_of(to));
  if (folder_of(from) != folder_of(to)) sync_entry(folder_of(from));
}

void delete_entry(const fs::path& path) {
  if (!remove_quietly(path)) fail(path, "removed");
}

void sync_entry(const fs::path& path) {
  const int fd = calls::open(path, O_RDONLY);
  if (fd < 0) fail(path, "synced");
  const bool synced = is_synced(fd);
  const int error = errno;
  const bool closed = calls::close(fd) == 0;
  if (!synced) fail(path, "synced", error);
  if (!closed) fail(path, "synced");
}

}  // namespace trainer
