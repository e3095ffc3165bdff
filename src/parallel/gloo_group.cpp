#include "parallel/gloo_group.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <tuple>
#include <utility>

#define USE_C10D_GLOO  // ProcessGroupGloo.hpp declares nothing without it
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/base/strings.h"
#include "trainer/parallel/ranks.h"
#include "trainer/parallel/tensor_exchange.h"

#include "base/foreign_errors.h"
#include "base/threads.h"

namespace trainer {
namespace {

// A note travels with its length in one message of this size; a longer one needs a second message.
constexpr size_t kShortNote = 512;

constexpr std::chrono::milliseconds kEndless = std::chrono::hours(24 * 30);  // patience ends sooner

using Bytes = std::vector<uint8_t>;

[[noreturn]] void throw_lost(const std::exception& error) {
  throw LostRank(concat("another rank has ended or does not answer (", own_words(error), ")"));
}

// Counts for how long the beats of the ranks have been missing. The time in which this process itself was
// stopped, as by Ctrl-Z, does not count.
class Silence {
 public:
  explicit Silence(const Patience& patience) : patience_(patience) {}

  bool is_too_long() {
    const auto now = std::chrono::steady_clock::now();
    const int64_t beats = patience_.beats;
    if (patience_.silence <= 0 || std::exchange(beats_, beats) != beats) {
      seconds_ = 0;
    } else {
      constexpr double kMost = 0.5;  // seconds that one look may count
      seconds_ += std::min(std::chrono::duration<double>(now - last_).count(), kMost);
    }
    last_ = now;
    return seconds_ > patience_.silence;
  }

 private:
  const Patience& patience_;
  int64_t beats_ = 0;
  double seconds_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

constexpr int64_t kTwo = 2;
constexpr int kSums = 4;
constexpr std::chrono::seconds kPatience(20);

// The first sum, which also waits for the other rank, is not counted.
double rate_of(const GlooGroup& group) {
  const at::Tensor tensor = at::zeros({TensorExchange::kMessageBytes / 4});
  group.all_reduce(tensor);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSums; i++) group.all_reduce(tensor);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(kSums * TensorExchange::kMessageBytes) / taken.count();
}

}  // namespace

struct GlooGroup::Gloo {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
  const Patience* patience;

  // Waits until the work is done or the patience ends. Then the work, the group and the bytes stay as they
  // are until the process ends: nothing can end a collective that waits for a silent rank.
  void wait(const c10::intrusive_ptr<c10d::Work>& work, Bytes& bytes) const {
    if (patience == nullptr) {
      work->wait();
      return;
    }
    Silence silence(*patience);
    while (!work->isCompleted()) {
      if (patience->given_up || patience->hanging_rank >= 0 || silence.is_too_long()) {
        static_cast<void>(new std::tuple(work, group, std::move(bytes)));
        const int64_t hanging = patience->hanging_rank;
        throw LostRank(hanging < 0 ? "another rank does not answer"
                                   : concat("rank ", hanging, " hangs while it loads: for ",
                                            duration_string(patience->silence),
                                            " (parallel.timeout) it has neither computed nor read anything; "
                                            "look at its disks and network file systems"));
      }
      std::this_thread::sleep_for(patience->look);
    }
    work->wait();
  }

  // Returns the bytes of all ranks, one after the other. It is a sum in which each rank has its own row,
  // because Gloo's own gathering allocates tensors, which a rank at its memory limit cannot.
  Bytes gather(const Bytes& mine, int64_t rank, int64_t count) const {
    Bytes all(mine.size() * static_cast<size_t>(count));
    std::ranges::copy(mine, all.begin() + rank * std::ssize(mine));
    std::vector<at::Tensor> tensors{
        at::from_blob(all.data(), {std::ssize(all)}, at::TensorOptions().dtype(at::kByte))};
    wait(group->allreduce(tensors), all);
    return all;
  }
};

GlooGroup::GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int64_t rank,
                     int64_t count, const std::string& address, std::chrono::milliseconds timeout,
                     const Patience* patience)
    : gloo_(std::make_unique<Gloo>()), rank_(rank), count_(count) {
  gloo_->patience = patience;
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(address.empty() && interface != nullptr
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  try {
    gloo_->group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                    static_cast<int>(rank), static_cast<int>(count), options);
    if (patience != nullptr) gloo_->group->setTimeout(kEndless);
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

GlooGroup::~GlooGroup() = default;

std::vector<std::string> GlooGroup::all_gather(const std::string& note) const {
  const size_t size = note.size();
  Bytes head(kShortNote);
  std::memcpy(head.data(), &size, sizeof size);
  std::memcpy(head.data() + sizeof size, note.data(), std::min(size, kShortNote - sizeof size));
  try {
    const Bytes heads = gloo_->gather(head, rank_, count_);
    std::vector<size_t> sizes(static_cast<size_t>(count_));
    for (size_t r = 0; r < sizes.size(); r++) std::memcpy(&sizes[r], &heads[r * kShortNote], sizeof size);
    const size_t longest = std::ranges::max(sizes);
    const bool all_are_short = longest <= kShortNote - sizeof size;
    Bytes whole(all_are_short ? 0 : longest);
    if (!all_are_short) std::memcpy(whole.data(), note.data(), size);
    const Bytes& all = all_are_short ? heads : (whole = gloo_->gather(whole, rank_, count_));
    const size_t row = all_are_short ? kShortNote : longest, begin = all_are_short ? sizeof size : 0;
    std::vector<std::string> notes;
    for (size_t r = 0; r < sizes.size(); r++)
      notes.emplace_back(reinterpret_cast<const char*>(all.data() + r * row + begin), sizes[r]);
    return notes;
  } catch (const LostRank&) {
    throw;
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::all_reduce(const at::Tensor& tensor) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    gloo_->group->allreduce(tensors)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::reduce(const at::Tensor& tensor, int64_t owner) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.rootRank = owner;
    gloo_->group->reduce(tensors, options)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

// All begin before the first is waited for: no order in which ranks wait for each other can arise.
void GlooGroup::send_recv(const std::vector<Transfer>& tensors) const {
  try {
    std::vector<c10::intrusive_ptr<c10d::Work>> begun;
    for (size_t i = 0; i < tensors.size(); i++) {
      const Transfer& one = tensors[i];
      std::vector<at::Tensor> tensor{one.tensor};
      const int tag = static_cast<int>(i);
      if (one.from == rank_) begun.push_back(gloo_->group->send(tensor, static_cast<int>(one.to), tag));
      if (one.to == rank_) begun.push_back(gloo_->group->recv(tensor, static_cast<int>(one.from), tag));
    }
    for (const auto& work : begun) work->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::broadcast(int64_t owner, const at::Tensor& tensor) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = owner;
    gloo_->group->broadcast(tensors, options)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

Heartbeat::Heartbeat(const Connect& connect, std::chrono::milliseconds pause, Say say, Hear hear)
    : pause_(pause), say_(std::move(say)), hear_(std::move(hear)) {
  patience_.look = std::chrono::milliseconds(10);
  group_ = connect(patience_);
  start_threads(thread_, 1, [this](int64_t) { beat(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    patience_.given_up = true;
  }
  leaves_.notify_all();
}

void Heartbeat::beat() {
  try {
    while (!patience_.given_up) {
      hear_(group_->all_gather(say_()));
      std::unique_lock lock(mutex_);
      leaves_.wait_for(lock, pause_, [this] { return patience_.given_up.load(); });
    }
  } catch (const LostRank&) {  // one has ended, as its other connections say
  }
}

double measure_sum_rate() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto measure = [&](int64_t rank) {
    return rate_of(GlooGroup(store, "measure", rank, kTwo, "127.0.0.1", kPatience, nullptr));
  };
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      measure(1);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  double rate = 0;
  std::exception_ptr own_failure;
  try {
    rate = measure(0);
  } catch (...) {
    own_failure = std::current_exception();
  }
  other.join();
  for (const std::exception_ptr& thrown : {own_failure, failure})
    if (thrown) std::rethrow_exception(thrown);
  return rate;
}

}  // namespace trainer
