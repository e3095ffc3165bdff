#include "trainer/parallel/ranks.h"

#include <atomic>
#include <future>
#include <latch>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trainer/parallel/tensor_exchange.h"

#include "parallel/gloo_group.h"
#include "support/error_message.h"
#include "support/in_ranks.h"

namespace trainer {
namespace {

using test::error_message;
using Notes = std::vector<std::string>;

TEST(Ranks, GiveNotesOfAnyLengthToAll) {
  const std::string longer(2'000'000, 'x');
  in_ranks(3, [&](const Ranks& ranks) {
    const std::string own = ranks.rank() == 1 ? longer : ranks.rank() == 2 ? "" : std::string("a\0b", 3);
    for (const Channel channel : {Channel::steps, Channel::phases, Channel::checkpoints})
      EXPECT_EQ(ranks.all_gather(own, channel), (Notes{std::string("a\0b", 3), longer, ""}));
  });
}

TEST(Ranks, OneAloneNeedsNobody) {
  const Ranks alone;
  EXPECT_TRUE(alone.alone() && alone.is_first());
  EXPECT_EQ(alone.all_gather("note"), Notes{"note"});
  const at::Tensor tensor = at::ones({3});
  TensorExchange(alone, at::kCPU, 12).all_reduce({{tensor, std::nullopt}});
  EXPECT_TRUE(tensor.equal(at::ones({3})));
}

TEST(Ranks, AddNumbersUpInOneOrder) {
  // In another order the sum is 0.
  in_ranks(3, [](const Ranks& ranks) {
    const std::vector<double> own{std::vector<double>{1e17, -1e17, 1}.at(static_cast<size_t>(ranks.rank()))};
    EXPECT_EQ(all_reduce(ranks, own), std::vector<double>{1});
  });
}

// Tensors of several sizes and types; rank r has r + 1 times the values.
std::vector<at::Tensor> tensors_of(int64_t rank) {
  std::vector<at::Tensor> tensors;
  for (const int64_t size : {1, 7, 300, 5'000'000, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      tensors.push_back(((at::arange(size) % 100) * (rank + 1)).to(type));
  }
  tensors.push_back((at::arange(600).view({20, 30}).t() * (rank + 1)).to(at::kFloat));
  return tensors;
}

TEST(TensorExchange, AddsUpTensorsOfAllSizesAndTypes) {
  in_ranks(3, [](const Ranks& ranks) {
    const std::vector<at::Tensor> ones = tensors_of(0), own = tensors_of(ranks.rank());
    std::vector<SharedTensor> shared;
    for (size_t i = 0; i < own.size(); i++)
      shared.push_back({own[i], i % 4 == 3 ? std::nullopt : std::optional<int64_t>(i % 3)});
    const TensorExchange exchange(ranks, at::kCPU, 30'000'000);
    exchange.all_reduce(shared);
    for (size_t i = 0; i < own.size(); i++) {
      if (shared[i].owner.value_or(ranks.rank()) != ranks.rank()) continue;
      const double tolerance = own[i].scalar_type() == at::kFloat ? 0 : 4;  // bf16 has 8 bits
      EXPECT_LE((own[i].to(at::kDouble) - 6 * ones[i].to(at::kDouble)).abs().max().item<double>(), tolerance)
          << i;
    }
  });
}

TEST(TensorExchange, CopiesEachTensorFromItsOwner) {
  in_ranks(2, [](const Ranks& ranks) {
    const std::vector<at::Tensor> first = tensors_of(0), second = tensors_of(1),
                                  own = tensors_of(ranks.rank());
    std::vector<SharedTensor> shared;
    for (size_t i = 0; i < own.size(); i++) shared.push_back({own[i], static_cast<int64_t>(i % 2)});
    TensorExchange(ranks, at::kCPU, 30'000'000).broadcast(shared);
    for (size_t i = 0; i < own.size(); i++) EXPECT_TRUE(own[i].equal(i % 2 == 0 ? first[i] : second[i])) << i;
  });
}

TEST(Together, AnErrorOfOneRankIsThrownByAll) {
  in_ranks(3, [](const Ranks& ranks) {
    const auto work = [&]() -> std::string {
      if (ranks.rank() == 2) throw DataError("rows.jsonl:3: is bad");
      return "fine";
    };
    try {
      run_on_all_ranks(ranks, work);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_STREQ(error.what(), "rank 2: rows.jsonl:3: is bad");
    }
    EXPECT_EQ(run_on_all_ranks(ranks, [] { return "go on"; }), (Notes{"go on", "go on", "go on"}));
  });
}

TEST(Together, OutOfMemoryStaysThat) {
  in_ranks(2, [](const Ranks& ranks) {
    const auto work = [&]() -> std::string {
      if (ranks.rank() == 0) throw OutOfMemoryError("no room");
      return "";
    };
    EXPECT_THROW(run_on_all_ranks(ranks, work), OutOfMemoryError);
  });
}

TEST(Ranks, ARankThatLeavesIsNoticedAndItsWordIsRead) {
  in_ranks(3, [](const Ranks& ranks) {
    if (ranks.rank() == 1) return ranks.notify_end({1, 4, "the disk is full", ErrorCode::disk_full});
    EXPECT_THROW(ranks.all_gather("are you there?"), LostRank);
    const auto end = ranks.first_end();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->rank, 1);
    EXPECT_EQ(end->code, 4);
    EXPECT_EQ(end->message, "the disk is full");
    EXPECT_EQ(end->family, ErrorCode::disk_full);
    ranks.notify_end(*end);
    ranks.wait_for_ends(10);
  });
}

TEST(Ranks, NobodyWaitsForTheEndOfARankThatIsGone) {
  // Rank 1 leaves without a word, as if it was killed; rank 2 leaves a word later than rank 0.
  std::latch over(1);
  in_ranks(3, [&](const Ranks& ranks) {
    if (ranks.rank() == 1) return;
    EXPECT_THROW(ranks.all_gather("are you there?"), LostRank);
    if (ranks.rank() == 2) over.wait();
    ranks.notify_end({ranks.rank(), 8, "lost", std::nullopt});
    if (ranks.is_first()) over.count_down();
    ranks.wait_for_ends(1e6);  // the test would not end
  });
}

TEST(Ranks, ASilentRankIsLostAfterTheTimeout) {
  in_ranks(
      2,
      [](const Ranks& ranks) {
        if (ranks.rank() == 1) {
          EXPECT_TRUE(ranks.end_of(0));  // says nothing until rank 0 has ended
          return;
        }
        EXPECT_THROW(ranks.all_gather("are you there?"), LostRank);
        ranks.notify_end({0, 8, "lost", std::nullopt});
      },
      3);
}

TEST(Ranks, GivingUpEndsTheWaitingOfOtherThreads) {
  std::latch over(1);
  in_ranks(2, [&](const Ranks& ranks) {
    if (!ranks.is_first()) return over.wait();  // it never comes to the exchange
    std::latch waiting(3);
    std::vector<std::thread> threads;
    for (const Channel channel : {Channel::phases, Channel::checkpoints}) {
      threads.emplace_back([&, channel] {
        waiting.arrive_and_wait();
        EXPECT_THROW(ranks.all_gather("are you there?", channel), LostRank);
      });
    }
    waiting.arrive_and_wait();
    ranks.give_up();
    for (std::thread& thread : threads) thread.join();
    over.count_down();
  });
}

TEST(Ranks, WorkOfAPhaseMayTakeLongerThanTheTimeout) {
  in_ranks(
      2,
      [](const Ranks& ranks) {
        if (ranks.is_first()) std::this_thread::sleep_for(std::chrono::seconds(5));
        EXPECT_EQ(ranks.all_gather("done", Channel::phases), (Notes{"done", "done"}));
      },
      2);
}

RankPlace first_of_two() {
  RankPlace place;
  place.count = 2;
  place.address = "127.0.0.1";
  place.port = free_port();
  return place;
}

TEST(Ranks, ARankThatDoesNotComeIsNamed) {
  const RankPlace place = first_of_two();
  EXPECT_EQ(error_message<LostRank>([&] { Ranks(place, 0.5); }),
            "rank 1 of 2 did not start within 0 s (parallel.timeout)");
}

// As rank 1 it comes, connects for the steps, and does nothing more.
TEST(Ranks, ARankThatStopsWhileTheyConnectIsLostAfterTheTimeout) {
  const RankPlace place = first_of_two();
  std::latch over(1);
  std::future<void> other = std::async(std::launch::async, [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(place.port);
    const auto store = c10::make_intrusive<c10d::PrefixStore>(
        "trainer/" + place.attempt, c10::make_intrusive<c10d::TCPStore>(place.address, options));
    store->set("here/1", std::vector<uint8_t>{1});
    const GlooGroup steps(store, "steps", 1, 2, place.address, std::chrono::seconds(10), nullptr);
    over.wait();
  });
  EXPECT_THROW(Ranks(place, 2), LostRank);
  over.count_down();
  other.get();
}

TEST(Ranks, APortInUseIsSaid) {
  const RankPlace place = first_of_two();
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(place.port));
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  const std::string message = error_message<ConfigError>([&] { Ranks(place, 1); });
  ::close(socket);
  EXPECT_NE(message.find("is the port in use? Choose another MASTER_PORT"), std::string::npos) << message;
}

// Listens at a port of this machine. What it does with a connection is up to the test.
class Listener {
 public:
  explicit Listener(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_, 5), 0);
  }
  ~Listener() { ::close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int accept() const { return ::accept(socket_, nullptr, nullptr); }

 private:
  int socket_;
};

std::string problem_of_second(RankPlace place) {
  place.rank = place.local_rank = 1;
  return error_message<LostRank>([&] { Ranks(place, 1); });
}

TEST(Ranks, APortThatAnswersNothingIsNotWaitedForForEver) {
  const RankPlace place = first_of_two();
  const Listener listener(place.port);
  const std::string problem = problem_of_second(place);
  EXPECT_NE(problem.find("does not answer at 127.0.0.1:"), std::string::npos) << problem;
  EXPECT_NE(problem.find("parallel.timeout"), std::string::npos) << problem;
}

TEST(Ranks, AProgramThatSpeaksAnotherLanguageIsNotWaitedForEither) {
  const RankPlace place = first_of_two();
  const Listener listener(place.port);
  std::atomic<bool> over = false;
  std::thread program([&] {
    const int connection = listener.accept();
    while (!over && ::send(connection, "H", 1, MSG_NOSIGNAL) == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(connection);
  });
  EXPECT_NE(problem_of_second(place).find("does not answer at 127.0.0.1:"), std::string::npos);
  over = true;
  program.join();
}

TEST(GlooGroup, ARankIsLostAlsoIfThereWasNeverABeat) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  constexpr std::chrono::seconds kTimeout(10);
  Patience patience;
  patience.silence = 0.5;
  std::latch over(1);
  std::thread silent([&] {
    const GlooGroup group(store, "phases", 1, 2, "127.0.0.1", kTimeout, nullptr);
    over.wait();
  });
  {
    const GlooGroup group(store, "phases", 0, 2, "127.0.0.1", kTimeout, &patience);
    EXPECT_THROW(group.all_gather("are you there?"), LostRank);
  }
  over.count_down();
  silent.join();
}

TEST(MeasureSums, TellsARate) { EXPECT_GT(measure_sum_rate(), 1e6); }

TEST(RankShares, GiveEachRankAboutTheSame) {
  EXPECT_EQ(divide_among(2, {5, 4, 3, 2}), (std::vector<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(divide_among(3, {0, 0, 0, 0}), (std::vector<int64_t>{0, 1, 2, 0}));
  EXPECT_EQ(divide_among(4, {1, 9}), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(divide_among(1, {1, 9}), (std::vector<int64_t>{0, 0}));
  EXPECT_TRUE(divide_among(3, {}).empty());
}

}  // namespace
}  // namespace trainer
