#include "parallel/gloo_group.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#define USE_C10D_GLOO  // ProcessGroupGloo.hpp declares nothing without it
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/base/first_line.h"
#include "trainer/base/strings.h"
#include "trainer/parallel/ranks.h"

namespace trainer {
namespace {

// A note travels with its length in one message of this size; a longer one needs a second message.
constexpr size_t kShortNote = 512;

using Bytes = std::vector<uint8_t>;

// A tensor on bytes that no memory limit counts, because a rank at its limit must still be able to say so.
at::Tensor view_of(Bytes& bytes, std::initializer_list<int64_t> shape) {
  return at::from_blob(bytes.data(), shape, at::TensorOptions().dtype(at::kByte));
}

[[noreturn]] void throw_lost(const std::exception& error) {
  throw LostRank(concat("another rank has ended or does not answer (", first_line(error.what()), ")"));
}

}  // namespace

struct GlooGroup::Gloo {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;

  // Returns the bytes of all ranks, one after the other.
  Bytes gather(Bytes mine, int64_t count) const {
    const auto size = static_cast<int64_t>(mine.size());
    Bytes all(mine.size() * static_cast<size_t>(count));
    std::vector<at::Tensor> inputs{view_of(mine, {size})};
    std::vector<std::vector<at::Tensor>> outputs{view_of(all, {count, size}).unbind()};
    group->allgather(outputs, inputs)->wait();
    return all;
  }
};

GlooGroup::GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int64_t rank,
                     int64_t count, const std::string& address, std::chrono::milliseconds timeout)
    : gloo_(std::make_unique<Gloo>()), count_(count) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(address.empty() && interface != nullptr
                                 ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  try {
    gloo_->group = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(name, store), static_cast<int>(rank), static_cast<int>(count),
        options);
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

GlooGroup::~GlooGroup() = default;

std::vector<std::string> GlooGroup::exchange(const std::string& note) const {
  const size_t size = note.size();
  Bytes head(kShortNote);
  std::memcpy(head.data(), &size, sizeof size);
  std::memcpy(head.data() + sizeof size, note.data(), std::min(size, kShortNote - sizeof size));
  try {
    const Bytes heads = gloo_->gather(std::move(head), count_);
    std::vector<size_t> sizes(static_cast<size_t>(count_));
    for (size_t r = 0; r < sizes.size(); r++) std::memcpy(&sizes[r], &heads[r * kShortNote], sizeof size);
    const size_t longest = std::ranges::max(sizes);
    const bool all_are_short = longest <= kShortNote - sizeof size;
    Bytes whole(all_are_short ? 0 : longest);
    if (!all_are_short) std::memcpy(whole.data(), note.data(), size);
    const Bytes& all = all_are_short ? heads : (whole = gloo_->gather(std::move(whole), count_));
    const size_t row = all_are_short ? kShortNote : longest, begin = all_are_short ? sizeof size : 0;
    std::vector<std::string> notes;
    for (size_t r = 0; r < sizes.size(); r++)
      notes.emplace_back(reinterpret_cast<const char*>(all.data() + r * row + begin), sizes[r]);
    return notes;
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::add_up(const at::Tensor& tensor) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    gloo_->group->allreduce(tensors)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::add_up_at(const at::Tensor& tensor, int64_t owner) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.rootRank = owner;
    gloo_->group->reduce(tensors, options)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

void GlooGroup::copy_from(int64_t owner, const at::Tensor& tensor) const {
  try {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = owner;
    gloo_->group->broadcast(tensors, options)->wait();
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

}  // namespace trainer
