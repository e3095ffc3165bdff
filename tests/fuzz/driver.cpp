// Runs a fuzzing target without libFuzzer, for the test suite: first every file of its corpus, then `--runs
// N` inputs that are mutated from these files with a fixed seed.
//
//   fuzz_TARGET [--runs N] [--seed N] FOLDER-OR-FILE…
//
// An input that crashes the process is left as crash-input in the working directory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <random>
#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

constexpr long kSeconds = 20;                          // of processor time for one input
constexpr rlim_t kMemory = rlim_t{4} * 1'000'000'000;  // of address space

const std::string* current = nullptr;

void keep_input() {
  const int fd = ::open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && current != nullptr && ::write(fd, current->data(), current->size()) >= 0) ::close(fd);
}

void on_signal(int number) {
  keep_input();
  const char text[] = "the input is in ./crash-input\n";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0) ::_exit(1);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void set_limits() {
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGVTALRM}) ::signal(number, on_signal);
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit limit{kMemory, kMemory};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

void run(const std::string& input) {
  current = &input;
  const itimerval timer{{0, 0}, {kSeconds, 0}};
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "uncaught: %s\n", e.what());
    std::abort();
  }
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  std::string next() {
    std::string input = pick(corpus_);
    for (size_t changes = 1 + below(4); changes > 0; changes--) change(input);
    return input;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& input) {
    static const std::vector<std::string> pieces{"0",       "-1",   "99999999999999999999",
                                                 "1e999",   "null", "true",
                                                 "[",       "]",    "{",
                                                 "}",       "\"",   "\\",
                                                 ",",       ":",    "\\u0",
                                                 "\\x",     "\xff", "\n",
                                                 "\\ud800", "(",    "*"};
    const size_t at = below(input.size() + 1), length = below(std::min<size_t>(input.size() - at, 64) + 1);
    switch (below(6)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ 1 << below(8));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(below(input.size() + 1), length));
        break;
      case 3:
        input.replace(at, length, pick(pieces));
        break;
      case 4: {
        const std::string& other = pick(corpus_);
        input.replace(at, length, other.substr(below(other.size() + 1), below(200)));
        break;
      }
      default:
        input.resize(at);
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t runs = 0;
  uint64_t seed = 1;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i];
    if (argument == "--runs" && i + 1 < argc) {
      runs = std::stoll(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::stoull(argv[++i]);
    } else {
      for (const fs::path& file : files_of(argument)) corpus.push_back(content_of(file));
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus\n");
    return 1;
  }
  set_limits();
  for (const std::string& input : corpus) run(input);
  Mutator mutator(corpus, seed);
  for (int64_t i = 0; i < runs; i++) run(mutator.next());
  std::printf("%zu files, %lld changed ones\n", corpus.size(), static_cast<long long>(runs));
}
