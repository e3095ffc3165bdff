#include "training/gradient_sums.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trainer/base/strings.h"

#include "base/memory_room.h"

namespace trainer {
namespace {

constexpr char kGives = '1', kLater = '0', kNoMore = '-';

int64_t piece_bytes = TensorExchange::kMessageBytes;

}  // namespace

SmallPieces::SmallPieces(int64_t bytes) { piece_bytes = bytes; }
SmallPieces::~SmallPieces() { piece_bytes = TensorExchange::kMessageBytes; }

GradientSums::GradientSums(const Ranks& ranks, const TensorExchange& exchange, const CopyStream& stream,
                           Gradients& gradients, const std::vector<TrainedParameter>& parameters,
                           StateDtype type, const std::map<std::string, int64_t>& owners, bool early)
    : ranks_(ranks),
      exchange_(exchange),
      stream_(stream),
      gradients_(gradients),
      parameters_(parameters),
      owners_(owners),
      piece_of_(parameters.size()),
      arrived_(parameters.size()) {
  cut(type);
  if (!early) return;
  gradients_.on_gradient([this](size_t place) { arrived(place); });
  require_room_for_threads(1, "the sums of gradients");
  thread_ = std::thread([this] { run(); });
}

GradientSums::~GradientSums() {
  if (!thread_.joinable()) return;
  gradients_.on_gradient(nullptr);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// From the last parameter to the first, about as a backward pass goes. Tables are at the end, because the
// pass has not done with them before. Where sums have owners, a piece has a message for each.
void GradientSums::cut(StateDtype type) {
  const int64_t most = piece_bytes * (owners_.empty() ? 1 : ranks_.count());
  for (const bool tables : {false, true}) {
    int64_t bytes = most;
    for (size_t place = parameters_.size(); place-- > 0;) {
      const TrainedParameter& parameter = parameters_[place];
      if (parameter.embedding != tables) continue;
      if (bytes >= most) {
        pieces_.emplace_back().tables = tables;
        bytes = 0;
      }
      pieces_.back().places.push_back(place);
      piece_of_[place] = pieces_.size() - 1;
      bytes += parameter.value.numel() * (type == StateDtype::fp32 ? 4 : parameter.value.element_size());
    }
  }
}

void GradientSums::during(const std::function<void()>& share) {
  if (!thread_.joinable()) return share();
  begin();
  try {
    share();
  } catch (...) {
    end(/*failed=*/true);
    throw;
  }
  end(/*failed=*/false);
}

void GradientSums::begin() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  for (Piece& piece : pieces_) piece.state = State::open;
  ended_ = failed_ = false;
  sharing_ = true;
  changed_.notify_all();
}

void GradientSums::end(bool failed) {
  std::unique_lock lock(mutex_);
  ended_ = true;
  failed_ = failed;
  giving_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !sharing_ || failure_; });
  gradients_.put_back();
  if (failure_) std::rethrow_exception(failure_);
}

void GradientSums::begin_pass(int64_t recomputed_blocks, bool last) {
  const std::lock_guard lock(mutex_);
  recomputed_ = recomputed_blocks;
  pass_++;
  std::ranges::fill(arrived_, 0);
  giving_ = last && sharing_ && !failure_;
  if (!giving_) return;
  for (Piece& piece : pieces_) {
    if (piece.state != State::open) continue;
    piece.missing = piece.places.size();
    if (!may_be_early(piece)) piece.state = State::later;
  }
  changed_.notify_all();
}

// A gradient that comes in parts, as of a weight that several recomputed blocks use, is known from earlier
// passes. Offloaded gradients are not on the device.
bool GradientSums::may_be_early(const Piece& piece) const {
  const auto most = most_.find(recomputed_);
  return most != most_.end() && !piece.tables && std::ranges::all_of(piece.places, [&](size_t place) {
           return most->second[place] == 1 && parameters_[place].offloaded == nullptr;
         });
}

void GradientSums::end_pass() {
  const std::lock_guard lock(mutex_);
  giving_ = false;
  std::vector<int64_t>& most = most_[recomputed_];
  most.resize(arrived_.size());
  for (size_t i = 0; i < most.size(); i++) most[i] = std::max(most[i], arrived_[i]);
}

// Autograd's thread calls it.
void GradientSums::arrived(size_t place) {
  const std::lock_guard lock(mutex_);
  const bool again = arrived_[place]++ > 0;
  Piece& piece = pieces_[piece_of_[place]];
  const bool given = piece.state == State::given || piece.state == State::summed;
  if (again && given && piece.pass == pass_)
    throw std::logic_error(concat(parameters_[place].name,
                                  ": a second gradient of a pass came after the first was given to others"));
  if (!giving_ || !sharing_ || piece.state != State::open) return;
  if (again)
    piece.state = State::later;
  else if (--piece.missing == 0)
    give(piece);
  if (piece.state != State::open) changed_.notify_all();
}

void GradientSums::give(Piece& piece) {
  const bool in_order = std::ranges::all_of(
      piece.places, [this](size_t place) { return gradients_.get(parameters_[place]).is_contiguous(); });
  piece.state = in_order ? State::given : State::later;
  if (!in_order) return;
  for (const size_t place : piece.places) gradients_.set_aside(place);
  piece.pass = pass_;
  piece.sums = tensors_of(piece);
  piece.ready = stream_.mark_work();
}

std::vector<SharedTensor> GradientSums::tensors_of(const Piece& piece) const {
  std::vector<SharedTensor> tensors;
  for (const size_t place : piece.places) {
    const TrainedParameter& parameter = parameters_[place];
    if (const at::Tensor sum = gradients_.get(parameter); sum.defined())
      tensors.push_back({sum, owners_.empty() ? std::nullopt : std::optional(owners_.at(parameter.name))});
  }
  return tensors;
}

void GradientSums::all_reduce_rest() {
  for (const Piece& piece : pieces_)
    if (piece.state != State::summed) exchange_.all_reduce(tensors_of(piece));
  for (Piece& piece : pieces_) piece.state = State::open;
}

void GradientSums::run() {
  try {
    const at::NoGradGuard no_grad;
    if (!stream_.device().is_cuda()) return take_turns();
    // A stream of its own, beside the device's work.
    const c10::DeviceGuard on_device(stream_.device());
    const c10::StreamGuard on_stream(
        c10::impl::VirtualGuardImpl(stream_.device().type()).getStreamFromGlobalPool(stream_.device()));
    take_turns();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void GradientSums::take_turns() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || sharing_; });
    if (ending_) return;
    for (Piece& piece : pieces_) {
      changed_.wait(lock, [&] { return piece.state != State::open || ended_; });
      if (!exchange_once(piece, lock)) break;
    }
    for (Piece& piece : pieces_) {
      piece.sums.clear();
      piece.ready = nullptr;
    }
    sharing_ = false;
    changed_.notify_all();
  }
}

// Returns whether there may be sums of later pieces.
bool GradientSums::exchange_once(Piece& piece, std::unique_lock<std::mutex>& lock) {
  const char own = vote_for(piece);
  if (own != kGives) piece.state = State::later;
  lock.unlock();
  const std::vector<std::string> votes = ranks_.all_gather(std::string(1, own));
  const auto is = [](char vote) {
    return [vote](const std::string& other) { return other.front() == vote; };
  };
  const bool all_give = std::ranges::all_of(votes, is(kGives));
  if (all_give) {
    CopyStream::host_waits_for(piece.ready);
    exchange_.all_reduce(piece.sums);
  }
  lock.lock();
  if (all_give) piece.state = State::summed;
  return std::ranges::none_of(votes, is(kNoMore));
}

// Returns what this rank answers when it is the piece's turn.
char GradientSums::vote_for(const Piece& piece) const {
  if (failed_) return kNoMore;
  if (piece.state == State::given) return kGives;
  const bool none = ended_ && std::ranges::none_of(pieces_, [&](const Piece& other) {
                      return &other > &piece && other.state == State::given;
                    });
  return none ? kNoMore : kLater;
}

}  // namespace trainer
