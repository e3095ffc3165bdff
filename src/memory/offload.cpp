#include "memory/offload.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"

#include "base/file_facts.h"
#include "base/mappings.h"
#include "base/special_files.h"
#include "device/cuda_driver.h"
#include "memory/meta_memory.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

// Small tensors share a piece of memory of this size; a larger one has a piece of its own.
constexpr size_t kSharedPiece = 4 << 20, kSmallTensor = kSharedPiece / 4;

// A piece of the memory below a device.
class OffloadPiece {
 public:
  virtual ~OffloadPiece() = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  virtual bool is_file() const = 0;

  // The next `bytes` that no tensor has; nullptr if there are not as many left.
  std::byte* take(size_t bytes) {
    if (size_ - taken_ < bytes) return nullptr;
    return data_ + std::exchange(taken_, taken_ + bytes);
  }

 protected:
  OffloadPiece(std::byte* data, size_t size) : data_(data), size_(size) {}

 private:
  std::byte* data_;
  size_t size_, taken_ = 0;
};

class DiskPiece final : public OffloadPiece {
 public:
  explicit DiskPiece(std::shared_ptr<const ScratchFile> file)
      : OffloadPiece(file->data(), file->size()), file_(std::move(file)) {}
  bool is_file() const override { return true; }

 private:
  std::shared_ptr<const ScratchFile> file_;
};

class PinnedPiece final : public OffloadPiece {
 public:
  PinnedPiece(std::byte* data, size_t size, int gpu) : OffloadPiece(data, size), gpu_(gpu) {}
  ~PinnedPiece() override { free_pinned(data(), gpu_); }
  bool is_file() const override { return false; }

 private:
  int gpu_;
};

// All pieces, and what is taken of them.
class Below {
 public:
  void set_directory(const fs::path& directory) {
    const std::lock_guard lock(mutex_);
    directory_ = directory;
    shared_.clear();
  }

  at::Tensor tensor(at::IntArrayRef sizes, const at::TensorOptions& options) {
    const auto bytes = static_cast<int64_t>(c10::multiply_integers(sizes) *
                                            static_cast<int64_t>(options.dtype().itemsize()));
    const int64_t charged = charged_bytes(bytes);
    const std::lock_guard lock(mutex_);
    const auto [piece, data] = place(static_cast<size_t>(charged), options.device());
    use_.in_use += charged;
    use_.peak = std::max(use_.peak, use_.in_use);
    const auto give_back = [this, piece = piece, charged](void*) mutable {
      const std::lock_guard again(mutex_);
      use_.in_use -= charged;
      piece.reset();
      forget_unused();
    };
    return at::for_blob(data, sizes)
        .deleter(give_back)
        .options(options.device(at::kCPU).requires_grad(false))
        .target_device(at::kCPU)
        .make_tensor();
  }

  // The piece at an address; nullptr if there is none.
  std::shared_ptr<const OffloadPiece> find(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto* wanted = static_cast<const std::byte*>(address);
    const auto after = pieces_.upper_bound(wanted);
    if (after == pieces_.begin()) return nullptr;
    std::shared_ptr<const OffloadPiece> piece = std::prev(after)->second.lock();
    return piece && wanted < piece->data() + piece->size() ? piece : nullptr;
  }

  OffloadUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }
  void add_moved(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    use_.moved += bytes;
  }

 private:
  std::pair<std::shared_ptr<OffloadPiece>, std::byte*> place(size_t bytes, at::Device device) {
    if (bytes >= kSmallTensor) {
      std::shared_ptr<OffloadPiece> own = new_piece(bytes, device);
      return {own, own->take(bytes)};
    }
    std::weak_ptr<OffloadPiece>& last = shared_[device.is_cuda() ? device.index() : -1];
    std::shared_ptr<OffloadPiece> shared = last.lock();
    std::byte* data = shared ? shared->take(bytes) : nullptr;
    if (data != nullptr) return {shared, data};
    shared = new_piece(kSharedPiece, device);
    last = shared;
    return {shared, shared->take(bytes)};
  }

  std::shared_ptr<OffloadPiece> new_piece(size_t bytes, at::Device device) {
    std::shared_ptr<OffloadPiece> piece = device.is_cuda() ? pinned(bytes, device) : on_disk(bytes);
    pieces_[piece->data()] = piece;
    return piece;
  }

  std::shared_ptr<OffloadPiece> on_disk(size_t bytes) const {
    try {
      return std::make_shared<DiskPiece>(ScratchFile::create(directory_, bytes));
    } catch (const FormatError& error) {
      throw of_family(
          ErrorCode::offload_room,
          OutOfMemoryError(concat("memory.offload_dir: ", error.what(), "; ", bytes_string(use_.in_use),
                                  " are offloaded already; make room, or "
                                  "choose another directory")));
    }
  }

  std::shared_ptr<OffloadPiece> pinned(size_t bytes, at::Device device) const {
    void* data = allocate_pinned(bytes, device.index());
    if (data == nullptr) {
      throw of_family(
          ErrorCode::offload_room,
          OutOfMemoryError(
              concat("memory.offload: the host has no room for ", bytes_string(static_cast<int64_t>(bytes)),
                     " more, ", bytes_string(free_memory(at::kCPU)), " free, ", bytes_string(use_.in_use),
                     " are offloaded already; offload less, or use a machine with more memory")));
    }
    return std::make_shared<PinnedPiece>(static_cast<std::byte*>(data), bytes, device.index());
  }

  void forget_unused() {
    std::erase_if(pieces_, [](const auto& entry) { return entry.second.expired(); });
  }

  std::mutex mutex_;
  fs::path directory_ = fs::temp_directory_path();
  std::map<const std::byte*, std::weak_ptr<OffloadPiece>> pieces_;
  std::map<int, std::weak_ptr<OffloadPiece>> shared_;  // by the number of the GPU; -1: the CPU
  OffloadUse use_;
};

// Never destroyed: tensors may outlive all else.
Below& below() {
  static auto* made = new Below;
  return *made;
}

bool lies_in_file(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.numel() == 0) return false;
  const auto piece = below().find(tensor.const_data_ptr());
  return piece && piece->is_file();
}

}  // namespace

void set_offload_directory(const fs::path& directory) {
  if (std::error_code ignored; fs::exists(directory, ignored) && !fs::is_directory(directory, ignored)) {
    throw ConfigError(concat("memory.offload_dir: ", directory.string(),
                             ": is a file, and not a directory; choose another directory"));
  }
  try {
    make_directories(directory);
    remove_scratch_files(directory);
    ScratchFile::create(directory, 1);  // shows whether it is writable
  } catch (const FormatError& error) {
    throw ConfigError(concat("memory.offload_dir: ", error.what(), "; choose another directory"));
  }
  if (lies_in_memory(directory)) {
    log::warning(concat("memory.offload_dir: ", directory.string(),
                        " lies in memory (tmpfs), so that nothing is saved; choose a directory on a disk"));
  }
  below().set_directory(directory);
}

at::Tensor offloaded_zeros(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (options.device().is_meta()) {
    const RecordingOffloaded offloaded;
    return at::empty(sizes, options);
  }
  if (c10::multiply_integers(sizes) == 0) return at::zeros(sizes, options.device(at::kCPU));
  return below().tensor(sizes, options);
}

at::Tensor seen_from(const at::Tensor& offloaded, at::Device device) {
  if (!device.is_cuda() || offloaded.numel() == 0) return offloaded.to(device);
  return at::for_blob(offloaded.mutable_data_ptr(), offloaded.sizes())
      .deleter([offloaded](void*) {})
      .options(offloaded.options().device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor on_host(const at::Tensor& seen) {
  if (!seen.is_cuda()) return seen;
  c10::impl::getDeviceGuardImpl(seen.device().type())->synchronizeDevice(seen.device().index());
  return at::for_blob(seen.mutable_data_ptr(), seen.sizes())
      .deleter([seen](void*) {})
      .options(seen.options().device(at::kCPU))
      .target_device(at::kCPU)
      .make_tensor();
}

bool is_offloaded(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.numel() > 0 && !tensor.is_meta() &&
         below().find(tensor.const_data_ptr());
}

void fetch_offloaded(const at::Tensor& tensor) {
  if (!lies_in_file(tensor)) return;
  expect_pages(static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<int64_t>(tensor.nbytes()));
}

void release_offloaded(const at::Tensor& tensor) {
  if (!lies_in_file(tensor)) return;
  release_pages(static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<int64_t>(tensor.nbytes()));
}

OffloadUse offload_use() { return below().use(); }
void count_moved(int64_t bytes) { below().add_moved(bytes); }

int64_t room_below(at::Device device, const fs::path& directory) {
  return device.is_cuda() ? free_memory(at::kCPU) : free_space(existing_part(directory));
}

}  // namespace trainer
