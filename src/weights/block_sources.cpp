// The sources of BlockStore's weights: the host's memory, or other ranks.
#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/parallel/ranks.h"

#include "base/mappings.h"
#include "memory/offload.h"
#include "parallel/shard_fetcher.h"
#include "weights/block_store.h"

namespace trainer {
namespace {

// On the CPU, frozen weights may lie in the model's own file, in memory that LibTorch cannot resize.
bool lies_in_model_file(const at::Tensor& tensor) {
  return !is_offloaded(tensor) && tensor.has_storage() && !tensor.storage().resizable();
}

std::byte* memory_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

void read_ahead(const Weight& weight) {
  for (const at::Tensor& tensor : weight.tensors()) {
    if (lies_in_model_file(tensor)) {
      expect_pages(memory_of(tensor), static_cast<int64_t>(tensor.nbytes()));
    } else {
      fetch_offloaded(tensor);
    }
  }
}

void release(const Weight& weight) {
  for (const at::Tensor& tensor : weight.tensors()) {
    if (lies_in_model_file(tensor)) {
      release_pages(memory_of(tensor), static_cast<int64_t>(tensor.nbytes()));
    } else {
      release_offloaded(tensor);
    }
  }
}

class OffloadedBlocks : public BlockSource {
 public:
  OffloadedBlocks(const std::vector<Module*>& blocks, std::shared_ptr<CopyStream> stream)
      : stream_(std::move(stream)) {
    for (Module* block : blocks) {
      std::vector<Weight>& weights = blocks_.emplace_back();
      for (const Parameter* parameter : large_weights(*block)) {
        if (parameter->value.offloaded()) weights.push_back(parameter->value);  // adapters save whole modules
      }
    }
  }

  // The device may still be writing weights that the host will use, too (checkpoints).
  ~OffloadedBlocks() override { CopyStream::host_waits_for(stream_->mark_work()); }
  OffloadedBlocks(const OffloadedBlocks&) = delete;
  OffloadedBlocks& operator=(const OffloadedBlocks&) = delete;

  const std::vector<Weight>& weights(size_t block) const override { return blocks_[block]; }
  bool copies() const override { return stream_->copies(); }

  Arrival fetch(size_t block, std::vector<at::Tensor> places, StreamMark free) override {
    enter(block);
    stream_->after(free, [&] {
      auto place = places.begin();
      for (const Weight& weight : blocks_[block]) {
        for (const at::Tensor& tensor : weight.tensors())
          place++->copy_(tensor.detach(), /*non_blocking=*/true);
      }
    });
    return {stream_->mark_copies(), {}};
  }

  // Without copies they come from a disk, if the system had no room to keep them in memory.
  void enter(size_t block) override {
    int64_t bytes = 0;
    for (const Weight& weight : blocks_[block]) bytes += bytes_in_buffer(weight);
    count_moved(bytes);
  }
  void expect(size_t block) override {
    for (const Weight& weight : blocks_[block]) read_ahead(weight);
  }
  void leave(size_t block, BlockPass pass) override {
    if (!copies()) {
      for (const Weight& weight : blocks_[block]) release(weight);
    } else if (pass == BlockPass::backward) {
      stream_->next_turn();  // for gradients on their way to the host
    }
  }

 private:
  std::vector<std::vector<Weight>> blocks_;
  std::shared_ptr<CopyStream> stream_;
};

class ShardedBlocks : public BlockSource {
 public:
  ShardedBlocks(const std::vector<Module*>& blocks, const Ranks& ranks, const TensorExchange& exchange,
                at::Device device)
      : owners_(shard_weights(blocks, ranks.count())), rank_(ranks.rank()) {
    for (Module* block : blocks) blocks_.push_back({large_weights(*block), {}});
    if (!device.is_meta()) share_metadata(ranks);
    std::vector<std::vector<OwnedTensor>> groups;
    for (size_t i = 0; i < blocks.size(); i++) {
      std::vector<OwnedTensor>& group = groups.emplace_back();
      for (const Parameter* parameter : blocks_[i].parameters) {
        const Weight& weight = parameter->value;
        const int64_t owner = owners_.at(parameter);
        for (const at::Tensor& tensor : weight.tensors())
          group.push_back({owner == rank_ ? tensor.detach() : at::Tensor(), owner});
        if (owner == rank_) continue;
        TORCH_CHECK(weight.is_of_other_rank(), blocks[i]->name(), ": a weight of rank ", owner, " is here");
        blocks_[i].of_others.push_back(weight);
      }
    }
    if (!device.is_meta()) lent_ = std::make_unique<ShardFetcher>(ranks, exchange, device, std::move(groups));
  }

  const std::vector<Weight>& weights(size_t block) const override { return blocks_[block].of_others; }
  bool copies() const override { return true; }

  Arrival fetch(size_t block, std::vector<at::Tensor> places, StreamMark free) override {
    if (!lent_) return {};
    std::vector<at::Tensor> of_group;
    auto place = places.begin();
    for (const Parameter* parameter : blocks_[block].parameters) {
      const bool is_own = owners_.at(parameter) == rank_;
      for (size_t i = 0; i < parameter->value.tensors().size(); i++)
        of_group.push_back(is_own ? at::Tensor() : *place++);
    }
    return {nullptr, lent_->fetch(block, std::move(of_group), std::move(free))};
  }
  void serve_until_all_end() override {
    if (lent_) lent_->serve_until_all_end();
  }

 private:
  struct Block {
    std::vector<Parameter*> parameters;
    std::vector<Weight> of_others;
  };

  // Each rank tells what it knows of its weights, in the order of the blocks: length and bytes.
  void share_metadata(const Ranks& ranks) {
    const auto for_each = [&](const auto& visit) {
      for (Block& block : blocks_) {
        for (Parameter* parameter : block.parameters) visit(*parameter, owners_.at(parameter));
      }
    };
    std::string own;
    for_each([&](const Parameter& parameter, int64_t owner) {
      if (owner != rank_) return;
      const std::string metadata = parameter.value.metadata();
      own.push_back(static_cast<char>(metadata.size()));
      own += metadata;
    });
    const std::vector<std::string> notes = ranks.all_gather(own, Channel::phases);
    std::vector<size_t> read(notes.size(), 0);
    for_each([&](Parameter& parameter, int64_t owner) {
      const auto of = static_cast<size_t>(owner);
      const auto size = static_cast<size_t>(notes[of].at(read[of]));
      const std::string metadata = notes[of].substr(read[of] + 1, size);
      read[of] += 1 + size;
      if (parameter.value.is_of_other_rank()) parameter.value.set_metadata(metadata);
    });
  }

  std::map<const Parameter*, int64_t> owners_;
  int64_t rank_;
  std::vector<Block> blocks_;
  std::unique_ptr<ShardFetcher> lent_;  // null on meta, where nothing travels
};

}  // namespace

std::vector<Parameter*> large_weights(Module& block) {
  std::vector<Parameter*> out;
  block.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.large) out.push_back(&parameter);
  });
  return out;
}

std::map<const Parameter*, int64_t> shard_weights(const std::vector<Module*>& blocks, int64_t ranks) {
  std::map<const Parameter*, int64_t> owners;
  std::vector<int64_t> loads(static_cast<size_t>(ranks), 0);
  for (Module* block : blocks) {
    const std::vector<Parameter*> weights = large_weights(*block);
    std::vector<int64_t> elements;
    for (const Parameter* weight : weights) elements.push_back(weight->numel());
    const std::vector<int64_t> divided = divide_among(ranks, elements, loads);
    for (size_t i = 0; i < weights.size(); i++) {
      owners[weights[i]] = divided[i];
      loads[static_cast<size_t>(divided[i])] += elements[i];
    }
  }
  return owners;
}

std::unique_ptr<BlockSource> offloaded_blocks(const std::vector<Module*>& blocks,
                                              std::shared_ptr<CopyStream> stream) {
  return std::make_unique<OffloadedBlocks>(blocks, std::move(stream));
}

std::unique_ptr<BlockSource> sharded_blocks(const std::vector<Module*>& blocks, const Ranks& ranks,
                                            const TensorExchange& exchange, at::Device device) {
  return std::make_unique<ShardedBlocks>(blocks, ranks, exchange, device);
}

}  // namespace trainer
