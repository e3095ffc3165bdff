#include "trainer/observe/jsonl_sink.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// Appends the whole line, or nothing. Returns 0 or the errno.
int append(int fd, const std::string& line) {
  const off_t before = ::lseek(fd, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(fd, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      // A row that stays half because this fails as well is what readers of JSON lines skip.
      if (done > 0 && before >= 0 && ::ftruncate(fd, before) != 0) return error;
      return error;
    }
    done += static_cast<size_t>(written);
  }
  return 0;
}

}  // namespace

JsonlSink::JsonlSink(std::filesystem::path path)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw FormatError(concat(path_.string(), ": cannot be written: ", std::strerror(errno)));
}

JsonlSink::~JsonlSink() { ::close(fd_); }

void JsonlSink::write(const MetricRow& row) {
  nlohmann::ordered_json line = {{"kind", row.kind}};
  line.update(row.values);
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // a path need not be UTF-8
  const int error = append(fd_, line.dump(-1, ' ', false, replace) + "\n");
  if (error != 0 && rows_lost_++ == 0) {
    log::warning(concat(path_.string(), ": a row could not be written: ", std::strerror(error),
                        "; training goes on, rows will be missing from the file"));
  }
}

}  // namespace trainer
