// Times how a file is read ahead of its use, as offloaded weights are (weights/block_store.h), beside the
// disk.
//
//   read_ahead FILE [--block 240] [--compute 400] [--rounds 5]
//
// The mapped file is used in blocks of so many MB. While one is used (its pages are touched, and a loop runs
// for
// --compute milliseconds), the next one is read ahead. One line for each round, in seconds: reading the file
// in order in pieces of 1 MB, the loops alone, both together, and both as a multiple of the longer one; 1 is
// what can be hidden. All begin with a cold page cache.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/mappings.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_after(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct File {
  int fd;
  std::byte* data;
  int64_t size;

  void forget() const {
    trainer::release_pages(data, size);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }
};

double read_in_order(const File& file) {
  std::vector<char> piece(1 << 20);
  file.forget();
  ::lseek(file.fd, 0, SEEK_SET);
  const auto begin = Clock::now();
  while (::read(file.fd, piece.data(), piece.size()) > 0) continue;
  return seconds_after(begin);
}

double use_in_blocks(const File& file, int64_t block, double compute) {
  file.forget();
  const auto begin = Clock::now();
  const auto expect = [&](int64_t first) {
    if (first < file.size) trainer::expect_pages(file.data + first, std::min(block, file.size - first));
  };
  expect(0);
  for (int64_t first = 0; first < file.size; first += block) {
    expect(first + block);
    const int64_t bytes = std::min(block, file.size - first);
    for (int64_t i = 0; i < bytes; i += 4096)
      static_cast<void>(*static_cast<volatile std::byte*>(file.data + first + i));
    const auto used = Clock::now();
    while (seconds_after(used) < compute) continue;
    trainer::release_pages(file.data + first, bytes);
  }
  return seconds_after(begin);
}

}  // namespace

int main(int count, char** arguments) {
  int64_t megabytes = 240, milliseconds = 400, rounds = 5;
  std::string path;
  for (int i = 1; i < count; i++) {
    const std::string word = arguments[i];
    int64_t* number = word == "--block"     ? &megabytes
                      : word == "--compute" ? &milliseconds
                      : word == "--rounds"  ? &rounds
                                            : nullptr;
    if (number != nullptr && i + 1 < count) {
      *number = std::max(1LL, std::atoll(arguments[++i]));
    } else {
      path = word;
    }
  }
  File file{::open(path.c_str(), O_RDONLY), nullptr, 0};
  struct stat status {};
  if (file.fd < 0 || ::fstat(file.fd, &status) != 0 || status.st_size == 0) {
    std::fprintf(stderr, "read_ahead: '%s' cannot be read; give a large file\n", path.c_str());
    return 2;
  }
  file.size = status.st_size;
  void* data = ::mmap(nullptr, static_cast<size_t>(file.size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    std::fprintf(stderr, "read_ahead: '%s' cannot be mapped\n", path.c_str());
    return 2;
  }
  file.data = static_cast<std::byte*>(data);
  const int64_t block = megabytes << 20, blocks = (file.size + block - 1) / block;
  const double compute = static_cast<double>(milliseconds) / 1000,
               computing = compute * static_cast<double>(blocks);
  for (int64_t round = 0; round < rounds; round++) {
    const double disk = read_in_order(file), both = use_in_blocks(file, block, compute);
    std::printf("disk %5.2f s (%4.0f MB/s)  computing %5.2f s  both %5.2f s  %.2f times the longer one\n",
                disk, static_cast<double>(file.size) / disk / 1e6, computing, both,
                both / std::max(disk, computing));
  }
  return 0;
}
