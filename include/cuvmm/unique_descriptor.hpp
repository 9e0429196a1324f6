// The owner of a file descriptor.
#pragma once

#include <utility>

namespace cuvmm {

// One open file descriptor, or none. It is closed when the owner goes; a close that fails goes to the clean-up failure
// handler. Different objects may be used from different threads.
class UniqueDescriptor {
 public:
  UniqueDescriptor() noexcept = default;
  // Takes over an open descriptor; a negative number is none.
  explicit UniqueDescriptor(int descriptor) noexcept : descriptor_(descriptor < 0 ? -1 : descriptor) {}

  UniqueDescriptor(UniqueDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueDescriptor& operator=(UniqueDescriptor&& other) noexcept;
  UniqueDescriptor(const UniqueDescriptor&) = delete;
  UniqueDescriptor& operator=(const UniqueDescriptor&) = delete;
  ~UniqueDescriptor() { close(); }

  [[nodiscard]] int get() const noexcept { return descriptor_; }  // -1 if there is none
  [[nodiscard]] explicit operator bool() const noexcept { return descriptor_ >= 0; }

  // Gives the descriptor to the caller, who closes it; this object has none afterwards.
  [[nodiscard]] int give_out() noexcept { return std::exchange(descriptor_, -1); }

  // Closes it now, if there is one.
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace cuvmm
