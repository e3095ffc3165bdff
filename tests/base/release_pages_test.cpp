#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "base/mappings.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::TemporaryDirectory;

constexpr int64_t kPage = 4096, kPages = 2000;

// A mapped file whose pages have number 0, 1, ... at their beginning.
class MappedFile {
 public:
  MappedFile() {
    fd_ = ::open((directory_ / "pages").c_str(), O_RDWR | O_CREAT, 0600);
    EXPECT_EQ(::ftruncate(fd_, kPages * kPage), 0);
    data_ =
        static_cast<std::byte*>(::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    for (int64_t i = 0; i < kPages; i++) *number(i) = i;
  }
  ~MappedFile() {
    ::munmap(data_, kPages * kPage);
    ::close(fd_);
  }

  std::byte* data() const { return data_; }
  int64_t* number(int64_t page) const { return reinterpret_cast<int64_t*>(data_ + page * kPage); }

  // Takes the pages from the process and from the system's cache.
  void forget() const {
    release_pages(data_, kPages * kPage);
    EXPECT_EQ(::fsync(fd_), 0);
    EXPECT_EQ(::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  int64_t pages_in_memory() const {
    std::vector<unsigned char> in_memory(kPages);
    EXPECT_EQ(::mincore(data_, kPages * kPage, in_memory.data()), 0);
    return std::ranges::count_if(in_memory, [](unsigned char page) { return (page & 1) != 0; });
  }

 private:
  TemporaryDirectory directory_;
  int fd_;
  std::byte* data_;
};

TEST(ReleasePages, WhatWasWrittenIsReadAgain) {
  const MappedFile file;
  file.forget();
  for (int64_t i = 0; i < kPages; i++) ASSERT_EQ(*file.number(i), i);
}

TEST(ExpectPages, PagesAreInMemoryWithoutATouch) {
  const MappedFile file;
  file.forget();
  if (file.pages_in_memory() == kPages) GTEST_SKIP() << "the temporary directory lies in memory";
  expect_pages(file.data() + 100, kPages * kPage - 100);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (file.pages_in_memory() < kPages) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << file.pages_in_memory() << " of " << kPages;
    std::this_thread::yield();
  }
}

TEST(ExpectPages, TheRangeMayBeUnmappedMeanwhile) {
  for (int i = 0; i < 20; i++) {
    const MappedFile file;
    file.forget();
    expect_pages(file.data(), kPages * kPage);
  }
  const MappedFile other;
  expect_pages(other.data(), kPages * kPage);
  for (int64_t i = 0; i < kPages; i++) ASSERT_EQ(*other.number(i), i);
}

}  // namespace
}  // namespace trainer
