#include "trainer/parallel/ranks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <netdb.h>
#include <numeric>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "base/memory_room.h"
#include "base/purposeful_wait.h"
#include "base/text.h"
#include "parallel/deadline.h"
#include "parallel/gloo_group.h"
#include "parallel/rank_notes.h"
#include "parallel/work_watch.h"

namespace trainer {
namespace {

using std::chrono::milliseconds;
using Store = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kForMessages = std::chrono::seconds(5);  // reading or leaving one
// A rank leaves its message before it closes its connections; one that was killed leaves none.
constexpr milliseconds kForFirstEnd = std::chrono::seconds(1);
constexpr milliseconds kMostBetweenBeats = std::chrono::seconds(1);
// LibTorch's own time limits come first, with their reasons; this much later everything else ends.
constexpr milliseconds kForReasons = std::chrono::seconds(1);

// Of the store, of Gloo and of the heartbeat; each of five groups has two.
constexpr int64_t kThreads = 13;

constexpr char kFirstEnd[] = "first end";  // the rank that ended first

// LibTorch's record of collectives, for its own debugging. It is filled without a lock
// (FlightRecorderDetail.hpp of 2.11), so first calls of two threads could end the process.
void turn_off_flight_recorder() {
  static const int done = ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  static_cast<void>(done);
}

std::string end_key(int64_t rank) { return concat("end/", rank); }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// LibTorch's connections tell of ranks that have ended in their own words, with a stack. The run says it.
void silence_connections() {
  ::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
}

// Returns "" when there is no way to this address.
std::string address_towards(const addrinfo& goal) {
  const int socket = ::socket(goal.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  auto* address = reinterpret_cast<sockaddr*>(&own);
  // Connecting a datagram socket only chooses the way.
  const bool found = ::connect(socket, goal.ai_addr, goal.ai_addrlen) == 0 &&
                     ::getsockname(socket, address, &size) == 0 &&
                     ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(socket);
  return found ? text.data() : "";
}

// Returns the address from which this machine would reach host:port; nothing is sent. Throws ConfigError when
// the host has no address.
std::string local_address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  if (problem == 0) {
    for (const addrinfo* goal = found; goal != nullptr; goal = goal->ai_next) {
      if (std::string address = address_towards(*goal); !address.empty()) return address;
    }
  }
  throw ConfigError(concat("MASTER_ADDR: the host '", host, "' has no address that this machine reaches",
                           problem == 0 ? "" : concat(" (", ::gai_strerror(problem), ")")));
}

std::string where(const RankPlace& place) { return concat(place.address, ":", place.port); }

// Rank 0 holds the store, unless the launcher does. Keys of an earlier attempt of the launcher are not seen.
Store open_store(const RankPlace& place, milliseconds timeout) {
  require_room_for_threads(kThreads, "the connections between ranks");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = place.rank == 0 && !place.hosted;
  options.numWorkers = static_cast<size_t>(place.count);
  options.waitWorkers = false;
  options.timeout = timeout;
  silence_connections();
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        concat("trainer/", place.attempt), c10::make_intrusive<c10d::TCPStore>(place.address, options));
  } catch (const std::exception& error) {
    if (options.isServer) {
      throw ConfigError(concat("rank 0 cannot wait for the others on ", where(place), ": ", own_words(error),
                               "; is the port in use? Choose another MASTER_PORT"));
    }
    throw LostRank(concat("rank 0 does not answer at ", where(place), ": ", own_words(error)));
  }
}

// Waits until every rank has come to the store.
void meet(c10d::Store& store, const RankPlace& place, milliseconds timeout) {
  const auto key = [](int64_t rank) { return concat("here/", rank); };
  store.set(key(place.rank), bytes_of("yes"));
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (int64_t rank = 0; rank < place.count; rank++) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    try {
      store.wait({key(rank)}, std::max(left, milliseconds(1)));
    } catch (const std::exception&) {
      throw LostRank(concat("rank ", rank, " of ", place.count, " did not start within ",
                            std::chrono::duration_cast<std::chrono::seconds>(timeout).count(),
                            " s (parallel.timeout)"));
    }
  }
}

milliseconds in_milliseconds(double seconds) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct Ranks::Group {
  // What answers at MASTER_ADDR:MASTER_PORT may be anything: a program that never says a word, or a rank 0
  // that stands still. So nothing that waits for it runs in this thread.
  Group(const RankPlace& place, milliseconds timeout) : hosts_store(place.rank == 0 && !place.hosted) {
    turn_off_flight_recorder();
    const std::string late =
        concat("rank 0 does not answer at ", where(place), " within ",
               duration_string(std::chrono::duration<double>(timeout).count()),
               " (parallel.timeout); does another program listen there? Choose another MASTER_PORT");
    const auto in_time = [&](auto work) { return within(timeout + kForReasons, late, std::move(work)); };
    store = in_time([place, timeout] { return open_store(place, timeout); });
    in_time([kept = store, place, timeout] { meet(*kept, place, timeout); });
    const bool chosen = std::getenv("GLOO_SOCKET_IFNAME") != nullptr;
    const std::string address =
        chosen ? "" : in_time([place] { return local_address_towards(place.address, place.port); });
    const auto connect = [&](const std::string& name, const Patience* until) {
      return in_time([kept = store, name, place, address, timeout, until] {
        return std::make_unique<GlooGroup>(kept, name, place.rank, place.count, address, timeout, until);
      });
    };
    steps = connect("steps", nullptr);
    phases = connect("phases", &patience);
    checkpoints = connect("checkpoints", &patience);
    weights = connect("weights", nullptr);
    const double longest = std::chrono::duration<double>(timeout).count();
    heartbeat.emplace([&](const Patience& stays) { return connect("heartbeat", &stays); },
                      std::min(kMostBetweenBeats, timeout / 4),
                      [this] { return std::to_string(work.idle_seconds()); },
                      [this, longest](const std::vector<std::string>& idle) {
                        ++patience.beats;
                        for (size_t rank = 0; rank < idle.size(); rank++) {
                          if (std::strtod(idle[rank].c_str(), nullptr) > longest)
                            patience.hanging_rank = static_cast<int64_t>(rank);
                        }
                      });
    // Where one rank has no thread for its beats, their silence says nothing.
    const std::vector<std::string> beating = steps->all_gather(heartbeat->has_begun() ? "yes" : "");
    if (std::ranges::all_of(beating, [](const std::string& one) { return !one.empty(); }))
      patience.silence = std::chrono::duration<double>(timeout).count();
    in_time([kept = store] { kept->setTimeout(kForMessages); });
    work.begin();
  }

  // Calls `use` with the connections of a channel.
  template <class Use>
  auto with(Channel channel, const Use& use) {
    const PurposefulWait waits;
    try {
      return use(of(channel));
    } catch (const LostRank&) {
      give_up();
      throw;
    }
  }

  void give_up() {
    has_lost_one = true;
    patience.given_up = true;
  }

  const GlooGroup& of(Channel channel) const {
    const std::unique_ptr<GlooGroup>& group = channel == Channel::steps         ? steps
                                              : channel == Channel::phases      ? phases
                                              : channel == Channel::checkpoints ? checkpoints
                                                                                : weights;
    if (!group) throw LostRank("this rank has left the others");
    if (patience.given_up) throw LostRank("another rank has ended or does not answer");
    return *group;
  }

  void leave() {
    patience.given_up = true;
    heartbeat.reset();
    steps.reset();
    phases.reset();
    checkpoints.reset();
    weights.reset();
  }

  // Returns what `talk` finds out from the store, or throws after `longest`: a rank 0 that stands still keeps
  // the connection and never answers. `talk` may then run on, so it must own what it uses.
  template <class Talk>
  auto ask_store(Talk talk, milliseconds longest = kForMessages + kMostBetweenBeats) {
    if (store_is_silent) throw LostRank("rank 0 does not answer");
    try {
      return within(longest, "rank 0 does not answer", [kept = store, talk] { return talk(*kept); });
    } catch (const LostRank&) {
      store_is_silent = true;
      throw;
    }
  }

  Store store;
  bool hosts_store;
  std::atomic<bool> store_is_silent{false}, has_lost_one{false};
  Patience patience;  // given up: a rank was lost in `steps` or `weights`, and nobody waits for it elsewhere
  WorkWatch work;
  std::unique_ptr<GlooGroup> steps, phases, checkpoints, weights;
  std::optional<Heartbeat> heartbeat;
  std::atomic<int64_t> bytes{0};
};

Ranks::Ranks() = default;

const Ranks& Ranks::none() {
  static const Ranks alone;
  return alone;
}

Ranks::Ranks(const RankPlace& place, double timeout) : Ranks(place.rank, place.count) {
  timeout_ = timeout;
  here_ = place.local_count;
  if (place.count > 1) group_ = std::make_shared<Group>(place, in_milliseconds(timeout));
}

Ranks Ranks::planned(int64_t count) { return {0, count}; }

Ranks::~Ranks() = default;
Ranks::Ranks(Ranks&&) noexcept = default;

std::vector<std::string> Ranks::all_gather(const std::string& note, Channel channel) const {
  if (!group_) return std::vector<std::string>(static_cast<size_t>(count_), note);
  return group_->with(channel, [&](const GlooGroup& group) { return group.all_gather(note); });
}

void Ranks::all_reduce(const at::Tensor& tensor, std::optional<int64_t> owner) const {
  if (!group_) return;
  count_given(static_cast<int64_t>(tensor.nbytes()));
  group_->with(Channel::steps, [&](const GlooGroup& group) {
    owner ? group.reduce(tensor, *owner) : group.all_reduce(tensor);
  });
}

void Ranks::broadcast(int64_t owner, const at::Tensor& tensor) const {
  if (!group_) return;
  count_given(static_cast<int64_t>(tensor.nbytes()));
  group_->with(Channel::steps, [&](const GlooGroup& group) { group.broadcast(owner, tensor); });
}

void Ranks::count_given(int64_t bytes) const {
  if (group_) group_->bytes += bytes;
}

void Ranks::send_recv(const std::vector<Transfer>& tensors) const {
  if (!group_) return;
  for (const Transfer& one : tensors)
    if (one.from == rank_) group_->bytes += static_cast<int64_t>(one.tensor.nbytes());
  group_->with(Channel::weights, [&](const GlooGroup& group) { group.send_recv(tensors); });
}

int64_t Ranks::bytes_given() const { return group_ ? group_->bytes.load() : 0; }

void Ranks::notify_end(const RankEnd& end) const noexcept {
  if (!group_) return;
  try {
    group_->ask_store([end, rank = rank_](c10d::Store& store) {
      store.set(end_key(rank), bytes_of(note_of(end)));
      if (end.code != 0) store.compareSet(kFirstEnd, {}, bytes_of(std::to_string(rank)));
    });
  } catch (...) {  // the store has gone with rank 0: there is nobody to notify
  }
  group_->leave();
}

std::optional<RankEnd> Ranks::first_end() const noexcept {
  if (!group_) return std::nullopt;
  try {
    const auto first = group_->ask_store([](c10d::Store& store) {
      store.wait({kFirstEnd}, kForFirstEnd);
      return store.get(kFirstEnd);
    });
    return end_of(std::stoll(std::string(first.begin(), first.end())));
  } catch (...) {  // nobody has left a message, or the store has gone
    return std::nullopt;
  }
}

std::optional<RankEnd> Ranks::end_of(int64_t rank) const noexcept {
  if (!group_) return std::nullopt;
  try {
    const auto message = group_->ask_store([rank](c10d::Store& store) { return store.get(end_key(rank)); });
    RankEnd end = end_in(std::string(message.begin(), message.end()));
    end.rank = rank;
    return end;
  } catch (...) {
    return std::nullopt;
  }
}

void Ranks::have_loaded() const noexcept {
  if (group_) group_->work.end();
}

void Ranks::give_up() const noexcept {
  if (group_) group_->give_up();
}

void Ranks::wait_for_ends(double seconds) const noexcept {
  if (!group_) return;
  const milliseconds longest = in_milliseconds(seconds);
  const auto talk = [rank = rank_, count = count_, hosts = group_->hosts_store, longest,
                     has_lost_one = group_->has_lost_one.load()](c10d::Store& store) {
    const auto key = [](int64_t of) { return concat("gone/", of); };
    store.set(key(rank), bytes_of("yes"));
    if (!hosts) return;
    // If this rank was the first to end, because it had lost another, that one will not come.
    const bool one_is_silent = has_lost_one && store.get(kFirstEnd) == bytes_of(std::to_string(rank));
    const auto until = std::chrono::steady_clock::now() + longest;
    while (std::chrono::steady_clock::now() < until) {
      int64_t gone = 0;
      for (int64_t other = 1; other < count; other++) gone += store.check({key(other)}) ? 1 : 0;
      if (gone >= count - (one_is_silent ? 2 : 1)) return;
      std::this_thread::sleep_for(milliseconds(20));
    }
  };
  try {
    group_->ask_store(talk, longest + kForMessages);
  } catch (...) {  // one was killed, or is slow to end
  }
}

std::vector<int64_t> divide_among(int64_t ranks, const std::vector<int64_t>& costs,
                                  std::vector<int64_t> load) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return costs[i]; });
  load.resize(static_cast<size_t>(ranks), 0);
  std::vector<int64_t> things(load.size(), 0), owner(costs.size(), 0);
  for (const size_t i : order) {
    // The least load, and among equal loads the fewest things, so that samples without tokens spread too.
    size_t least = 0;
    for (size_t rank = 1; rank < load.size(); rank++) {
      if (std::pair(load[rank], things[rank]) < std::pair(load[least], things[least])) least = rank;
    }
    owner[i] = static_cast<int64_t>(least);
    load[least] += costs[i];
    things[least]++;
  }
  return owner;
}

}  // namespace trainer
