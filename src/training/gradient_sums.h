// Adds up gradients over the ranks in pieces, and begins while the last backward pass of a step runs.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"
#include "trainer/parallel/tensor_exchange.h"

#include "memory/copy_stream.h"

namespace trainer {

// The pieces are the same on all ranks and in all steps, and each is added up at once, during the pass or
// after it. So the result does not depend on when that happens.
//
// A piece is this rank's full share as soon as the last backward pass has added to each of its gradients.
// Then the rank gives it: the gradients are set aside, and stay what they are even if the rank runs out of
// memory later in that pass and repeats its passes. A thread of the rank tells the others, for one piece
// after the other, whether its rank gives it. If all do, it is added up at once, else after the passes.
class GradientSums {
 public:
  // `parameters`: those of the gradients, in the same order. `owners`: the ranks that get the sums, by name;
  // empty: all do. `early`: begin during the pass. Otherwise there is no thread, and during() only calls
  // `share`. All but the configuration's type must outlive it.
  GradientSums(const Ranks& ranks, const TensorExchange& exchange, const CopyStream& stream,
               Gradients& gradients, const std::vector<TrainedParameter>& parameters, StateDtype type,
               const std::map<std::string, int64_t>& owners, bool early);
  ~GradientSums();
  GradientSums(const GradientSums&) = delete;
  GradientSums& operator=(const GradientSums&) = delete;

  // Calls `share`, the passes of this rank in a step, and waits until it is known which pieces the others
  // give. Throws what `share` throws, and LostRank.
  void during(const std::function<void()>& share);
  // Each backward pass is between these calls. `recomputed_blocks`: which passes are alike. `last`: all that
  // follows in this share repeats it.
  void begin_pass(int64_t recomputed_blocks, bool last);
  void end_pass();
  // Adds up the pieces that are left; gradients that no rank has are left out. Every rank must call it after
  // during(), with gradients of the same parameters. Throws LostRank.
  void all_reduce_rest();

 private:
  enum class State { open, given, later, summed };
  struct Piece {
    std::vector<size_t> places;  // indices of its parameters
    bool tables = false;         // it has embedding tables, to which several blocks of a pass may add
    State state = State::open;
    size_t missing = 0;              // gradients that have not come in the last pass
    int64_t pass = 0;                // in which it was given
    std::vector<SharedTensor> sums;  // what this rank has given
    StreamMark ready;
  };

  void cut(StateDtype type);
  void run();
  void take_turns();
  void take_turn();
  bool exchange_once(Piece& piece, std::unique_lock<std::mutex>& lock);
  char vote_for(const Piece& piece) const;
  void begin();
  void end(bool failed);
  void arrived(size_t place);
  void give(Piece& piece);
  bool may_be_early(const Piece& piece) const;
  std::vector<SharedTensor> tensors_of(const Piece& piece) const;

  const Ranks& ranks_;
  const TensorExchange& exchange_;
  const CopyStream& stream_;
  Gradients& gradients_;
  const std::vector<TrainedParameter>& parameters_;
  const std::map<std::string, int64_t>& owners_;
  std::vector<size_t> piece_of_;  // by place

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> arrived_;                  // times that each gradient has come in this pass
  std::map<int64_t, std::vector<int64_t>> most_;  // the most of whole passes, by recomputed blocks
  int64_t recomputed_ = 0, pass_ = 0;
  bool giving_ = false;                  // the pass is the last of the share
  bool sharing_ = false;                 // the thread takes its turns
  bool ended_ = false, failed_ = false;  // the share
  bool ending_ = false;                  // the thread shall end
  std::exception_ptr failure_;           // that the thread has thrown
  std::thread thread_;
};

// For tests: while it lives, new pieces are of about so many bytes.
class SmallPieces {
 public:
  explicit SmallPieces(int64_t bytes);
  ~SmallPieces();
  SmallPieces(const SmallPieces&) = delete;
  SmallPieces& operator=(const SmallPieces&) = delete;
};

}  // namespace trainer
