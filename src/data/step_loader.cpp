#include "trainer/data/step_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "trainer/data/batching.h"

#include "base/threads.h"

namespace trainer {
namespace {

// Samples that a thread takes at once: few enough to spread a batch evenly, and enough that threads rarely
// wait for each other.
constexpr size_t kSamplesAtOnce = 8;

}  // namespace

class StepLoader::Queue {
 public:
  Queue(const Dataset& dataset, NextIndices next_indices, const StepLoaderOptions& options)
      : dataset_(dataset),
        next_indices_(std::move(next_indices)),
        prefetch_(static_cast<size_t>(std::max<int64_t>(options.prefetch, 1))),
        share_(options.share) {
    const int64_t wanted = std::max<int64_t>(options.num_workers, 1);
    const int64_t started = start_threads(threads_, wanted, [this](int64_t) { work(); });
    if (started == 0) throw_no_threads("training.num_workers", wanted);
    if (started < wanted) warn_of_fewer_threads("training.num_workers", started, wanted);
  }

  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    threads_.clear();  // joins
  }

  EffectiveBatch next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] {
      return failure_ != nullptr || (batches_.empty() ? ended_ : batches_.front().is_made());
    });
    if (failure_) std::rethrow_exception(failure_);
    if (batches_.empty()) throw std::logic_error("a StepLoader was asked for more batches than there are");
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    lock.unlock();
    room_.notify_all();
    if (batch.failure) std::rethrow_exception(batch.failure);
    return std::move(batch.made);
  }

 private:
  struct Batch {
    std::vector<int64_t> indices;
    int64_t epoch = 0;
    EffectiveBatch made;
    size_t taken = 0, done = 0;  // samples
    std::exception_ptr failure;  // the first failed sample's
    size_t failed_sample = 0;

    bool is_made() const { return done == indices.size(); }
    void fail(size_t sample, std::exception_ptr what) {
      if (failure && failed_sample < sample) return;
      failure = std::move(what);
      failed_sample = sample;
    }
  };
  // The samples of a batch that one thread makes. The batch stays at its address until all of them are done.
  struct Part {
    Batch* batch = nullptr;
    size_t begin = 0, end = 0;
    int64_t tokens = 0, supervised_tokens = 0;
    std::exception_ptr failure;
    size_t failed_sample = 0;
  };

  // An error that does not belong to a sample (such as no memory for the next batch) stops all workers.
  void work() {
    try {
      make_batches();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      stopped_ = true;
      ready_.notify_all();
      room_.notify_all();
    }
  }

  void make_batches() {
    std::unique_lock lock(mutex_);
    while (true) {
      Part share;
      room_.wait(lock, [&] { return stopped_ || take(share); });
      if (stopped_) return;
      lock.unlock();
      make(share);
      lock.lock();
      finish(share);
    }
  }

  // Takes work from the first batch with unmade samples; returns false when there is nothing to do now.
  bool take(Part& share) {
    auto batch = std::ranges::find_if(batches_, [](const Batch& b) { return b.taken < b.indices.size(); });
    if (batch == batches_.end()) {
      if (ended_ || batches_.size() == prefetch_ || !add_batch()) return false;
      batch = batches_.end() - 1;
      room_.notify_all();  // the others have work too
    }
    share.batch = &*batch;
    share.begin = batch->taken;
    share.end = batch->taken = std::min(batch->taken + kSamplesAtOnce, batch->indices.size());
    return true;
  }

  // Returns false when there are no more.
  bool add_batch() {
    Batch batch;
    try {
      StepIndices next = next_indices_();
      batch.indices = std::move(next.indices);
      batch.epoch = next.epoch;
      batch.made.sides = dataset_.sides();
      batch.made.reference_of_others = dataset_.references_of_others(batch.indices);
      batch.made.samples.resize(batch.indices.size() * static_cast<size_t>(batch.made.sides));
      batch.made.share = share_;
    } catch (...) {
      batch.indices.clear();
      batch.failure = std::current_exception();
    }
    ended_ = batch.indices.empty();
    if (ended_) ready_.notify_all();
    if (!ended_ || batch.failure) batches_.push_back(std::move(batch));
    return !ended_;
  }

  void make(Part& share) const {
    for (size_t i = share.begin; i < share.end; i++) {
      try {
        size_t slot = i;
        for (Sample& sample : dataset_.samples(share.batch->indices[i], share.batch->epoch)) {
          share.tokens += token_count(sample, dataset_.encoder_decoder());
          share.supervised_tokens += supervised_tokens(sample, dataset_.encoder_decoder());
          share.batch->made.samples[slot] = std::move(sample);
          slot += share.batch->indices.size();
        }
      } catch (...) {
        share.failure = std::current_exception();
        share.failed_sample = i;
        return;
      }
    }
  }

  void finish(const Part& share) {
    Batch& batch = *share.batch;
    batch.made.tokens += share.tokens;
    batch.made.supervised_tokens += share.supervised_tokens;
    batch.done += share.end - share.begin;
    if (share.failure) batch.fail(share.failed_sample, share.failure);
    if (batch.is_made()) ready_.notify_all();
  }

  const Dataset& dataset_;
  const NextIndices next_indices_;
  const size_t prefetch_;
  const Share share_;
  std::mutex mutex_;
  std::condition_variable room_,
      ready_;                  // signalled when there is room for another batch; when a batch is complete
  std::deque<Batch> batches_;  // in order; references stay valid
  bool ended_ = false, stopped_ = false;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

StepLoader::StepLoader(const Dataset& dataset, NextIndices next_indices, const StepLoaderOptions& options)
    : queue_(std::make_unique<Queue>(dataset, std::move(next_indices), options)) {}
StepLoader::~StepLoader() = default;

EffectiveBatch StepLoader::next() { return queue_->next(); }

}  // namespace trainer
