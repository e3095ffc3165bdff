// A buffer whose size is known only at run time and is usually small. It lies on the stack if it fits.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace trainer {

// The values are not initialised. T must not need a constructor.
template <typename T, size_t kOnStack>
class SmallBuffer {
 public:
  explicit SmallBuffer(size_t size)
      : heap_(size > kOnStack ? std::make_unique_for_overwrite<T[]>(size) : nullptr),
        data_(heap_ ? heap_.get() : stack_.data()) {}
  SmallBuffer(const SmallBuffer&) = delete;
  SmallBuffer& operator=(const SmallBuffer&) = delete;

  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  std::array<T, kOnStack> stack_;
  std::unique_ptr<T[]> heap_;
  T* data_;
};

}  // namespace trainer
