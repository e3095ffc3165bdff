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
constexpr int64_t kShortNote = 512;

at::Tensor bytes_tensor(int64_t rows, int64_t bytes) {
  return at::zeros({rows, bytes}, at::TensorOptions().dtype(at::kByte));
}

[[noreturn]] void throw_lost(const std::exception& error) {
  throw LostRank(concat("another rank has ended or does not answer (", first_line(error.what()), ")"));
}

}  // namespace

struct GlooGroup::Gloo {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group;

  at::Tensor gather(at::Tensor mine, int64_t count) const {
    at::Tensor all = bytes_tensor(count, mine.numel());
    std::vector<at::Tensor> inputs{std::move(mine)};
    std::vector<std::vector<at::Tensor>> outputs{all.unbind()};
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
    gloo_->group =
        c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                    static_cast<int>(rank), static_cast<int>(count), options);
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

GlooGroup::~GlooGroup() = default;

std::vector<std::string> GlooGroup::exchange(const std::string& note) const {
  const auto size = static_cast<int64_t>(note.size());
  constexpr auto kHeader = static_cast<int64_t>(sizeof(int64_t));
  at::Tensor head = bytes_tensor(1, kShortNote).view({kShortNote});
  auto* bytes = head.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &size, sizeof size);
  std::memcpy(bytes + kHeader, note.data(), static_cast<size_t>(std::min(size, kShortNote - kHeader)));
  try {
    const at::Tensor heads = gloo_->gather(std::move(head), count_);
    const auto* all = heads.const_data_ptr<uint8_t>();
    std::vector<int64_t> sizes(static_cast<size_t>(count_));
    for (int64_t r = 0; r < count_; r++)
      std::memcpy(&sizes[static_cast<size_t>(r)], all + r * kShortNote, sizeof(int64_t));
    const int64_t longest = std::ranges::max(sizes);
    at::Tensor long_notes;
    if (longest > kShortNote - kHeader) {
      at::Tensor whole = bytes_tensor(1, longest).view({longest});
      std::memcpy(whole.mutable_data_ptr(), note.data(), note.size());
      long_notes = gloo_->gather(std::move(whole), count_);
      all = long_notes.const_data_ptr<uint8_t>();
    }
    const int64_t row = long_notes.defined() ? longest : kShortNote;
    const int64_t begin = long_notes.defined() ? 0 : kHeader;
    std::vector<std::string> notes;
    for (int64_t r = 0; r < count_; r++) {
      notes.emplace_back(reinterpret_cast<const char*>(all + r * row + begin),
                         static_cast<size_t>(sizes[static_cast<size_t>(r)]));
    }
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
