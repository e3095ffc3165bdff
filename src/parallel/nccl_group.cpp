#include "parallel/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/dynamic_library.h"
#include "parallel/deadline.h"

namespace trainer {
namespace {

// From nccl.h.
struct UniqueId {
  char bytes[128];
};
enum Result : int { success = 0, in_progress = 7 };
enum DataType : int { uint8 = 1, float32 = 7, bfloat16 = 9 };
constexpr int kSum = 0;
using Communicator = void*;
using Stream = void*;

DataType type_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return float32;
  if (tensor.scalar_type() == at::kBFloat16) return bfloat16;
  if (tensor.scalar_type() == at::kByte) return uint8;
  throw std::logic_error(concat("NCCL: no ", c10::toString(tensor.scalar_type()), " is exchanged"));
}

}  // namespace

struct NcclGroup::Library {
  DynamicLibrary library{"libnccl.so.2"};
  int (*get_unique_id)(UniqueId*) = library.find<int(UniqueId*)>("ncclGetUniqueId");
  int (*init_rank)(Communicator*, int, UniqueId,
                   int) = library.find<int(Communicator*, int, UniqueId, int)>("ncclCommInitRank");
  int (*group_start)() = library.find<int()>("ncclGroupStart");
  int (*group_end)() = library.find<int()>("ncclGroupEnd");
  int (*all_reduce)(const void*, void*, size_t, int, int, Communicator, Stream) =
      library.find<int(const void*, void*, size_t, int, int, Communicator, Stream)>("ncclAllReduce");
  int (*reduce)(const void*, void*, size_t, int, int, int, Communicator, Stream) =
      library.find<int(const void*, void*, size_t, int, int, int, Communicator, Stream)>("ncclReduce");
  int (*broadcast)(const void*, void*, size_t, int, int, Communicator, Stream) =
      library.find<int(const void*, void*, size_t, int, int, Communicator, Stream)>("ncclBroadcast");
  int (*send)(const void*, size_t, int, int, Communicator,
              Stream) = library.find<int(const void*, size_t, int, int, Communicator, Stream)>("ncclSend");
  int (*recv)(void*, size_t, int, int, Communicator,
              Stream) = library.find<int(void*, size_t, int, int, Communicator, Stream)>("ncclRecv");
  int (*async_error)(Communicator, int*) = library.find<int(Communicator, int*)>("ncclCommGetAsyncError");
  int (*abort)(Communicator) = library.find<int(Communicator)>("ncclCommAbort");
  const char* (*text)(int) = library.find<const char*(int)>("ncclGetErrorString");

  bool is_complete() const {
    return get_unique_id && init_rank && group_start && group_end && all_reduce && reduce && broadcast &&
           send && recv && async_error && abort && text;
  }
};

struct NcclGroup::Connection {
  Library nccl;
  Communicator communicator = nullptr;
  c10::Device device = c10::kCUDA;
  double timeout = 0;
  int64_t rank = 0;

  // Returns why it cannot be used, or "".
  std::string open(int64_t ranks, const std::string& id_bytes) {
    UniqueId id{};
    if (id_bytes.size() != sizeof id) return "rank 0 has no NCCL";
    std::memcpy(&id, id_bytes.data(), sizeof id);
    const c10::DeviceGuard on_device(device);
    const int result = nccl.init_rank(&communicator, static_cast<int>(ranks), id, static_cast<int>(rank));
    return result == success ? "" : nccl.text(result);
  }

  ~Connection() {
    if (communicator != nullptr) nccl.abort(communicator);
  }
};

NcclGroup::NcclGroup(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
NcclGroup::~NcclGroup() = default;

// As Connection::open(), but a rank that ends meanwhile is not waited for without end.
std::string NcclGroup::opened(std::unique_ptr<Connection>& connection, int64_t ranks, const std::string& id) {
  constexpr double kLeast = 120;  // seconds: the libraries of a GPU may be slow to load
  const auto longest =
      std::chrono::milliseconds(static_cast<int64_t>(1000 * std::max(connection->timeout, kLeast)));
  try {
    return within(longest, "another rank does not answer while the GPUs are connected",
                  [own = connection.get(), ranks, id] { return own->open(ranks, id); });
  } catch (const LostRank&) {
    static_cast<void>(connection.release());  // its thread still uses it
    throw;
  }
}

std::unique_ptr<NcclGroup> NcclGroup::connect(const Ranks& ranks, c10::Device device) {
  auto connection = std::make_unique<Connection>();
  connection->device = device;
  connection->timeout = ranks.timeout();
  connection->rank = ranks.rank();
  const bool complete = connection->nccl.is_complete();
  UniqueId id{};
  const bool gives_id = ranks.is_first() && complete && connection->nccl.get_unique_id(&id) == success;
  // Nobody connects unless all can: connecting waits for all.
  const std::vector<std::string> notes = ranks.all_gather(
      concat(complete ? 'y' : 'n', gives_id ? std::string(id.bytes, sizeof id.bytes) : std::string()));
  std::string problem;
  for (const std::string& note : notes)
    if (note.front() != 'y') problem = "libnccl.so.2 is missing or too old on one rank";
  if (problem.empty()) problem = opened(connection, ranks.count(), notes.front().substr(1));
  for (const std::string& of_rank : ranks.all_gather(problem))
    if (!of_rank.empty()) problem = of_rank;
  if (problem.empty()) return std::unique_ptr<NcclGroup>(new NcclGroup(std::move(connection)));
  if (ranks.is_first())
    log::warning(concat("NCCL cannot be used (", problem,
                        "): gradients and weights travel through main memory, which is slower"));
  return nullptr;
}

void NcclGroup::all_reduce(const std::vector<SharedTensor>& tensors) {
  launch(tensors, [this](const SharedTensor& shared, void* data, size_t count, int type, Stream stream) {
    const Library& nccl = connection_->nccl;
    Communicator all = connection_->communicator;
    return shared.owner
               ? nccl.reduce(data, data, count, type, kSum, static_cast<int>(*shared.owner), all, stream)
               : nccl.all_reduce(data, data, count, type, kSum, all, stream);
  });
}

void NcclGroup::broadcast(const std::vector<SharedTensor>& tensors) {
  launch(tensors, [this](const SharedTensor& shared, void* data, size_t count, int type, Stream stream) {
    return connection_->nccl.broadcast(data, data, count, type, static_cast<int>(*shared.owner),
                                       connection_->communicator, stream);
  });
}

void NcclGroup::send_recv(const std::vector<Transfer>& tensors) {
  std::vector<Transfer> own;
  std::ranges::copy_if(tensors, std::back_inserter(own),
                       [](const Transfer& one) { return one.tensor.defined(); });
  launch(own, [this](const Transfer& one, void* data, size_t count, int type, Stream stream) {
    const Library& nccl = connection_->nccl;
    Communicator all = connection_->communicator;
    return one.from == connection_->rank
               ? nccl.send(data, count, type, static_cast<int>(one.to), all, stream)
               : nccl.recv(data, count, type, static_cast<int>(one.from), all, stream);
  });
}

template <class Shared, class Launch>
void NcclGroup::launch(const std::vector<Shared>& tensors, const Launch& one) {
  const Library& nccl = connection_->nccl;
  const c10::DeviceGuard on_device(connection_->device);
  const c10::impl::VirtualGuardImpl guard(connection_->device.type());
  Stream stream = guard.getStream(connection_->device).native_handle();
  int result = nccl.group_start();
  for (const Shared& shared : tensors) {
    if (result != success) break;
    result = one(shared, shared.tensor.data_ptr(), static_cast<size_t>(shared.tensor.numel()),
                 type_of(shared.tensor), stream);
  }
  const int ended = nccl.group_end();
  if (result == success) result = ended;
  if (result != success) throw LostRank(concat("NCCL: ", nccl.text(result)));
  wait();
}

// Watches the stream, because a rank that is gone would otherwise be waited for without end.
void NcclGroup::wait() {
  const c10::impl::VirtualGuardImpl guard(connection_->device.type());
  c10::Event done(connection_->device.type());
  done.record(guard.getStream(connection_->device));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(connection_->timeout);
  for (;;) {
    if (done.query()) return;
    int state = success;
    connection_->nccl.async_error(connection_->communicator, &state);
    const bool failed = state != success && state != in_progress;
    if (failed || std::chrono::steady_clock::now() > until) {
      connection_->nccl.abort(std::exchange(connection_->communicator, nullptr));
      throw LostRank(concat("another rank has ended or does not answer (NCCL: ",
                            failed ? connection_->nccl.text(state) : "timeout", ")"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace trainer
