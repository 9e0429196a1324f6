// Kernels that the emulated driver can run: host functions under a kernel's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace cuvmm::emulator {

// The arguments of one launch, copied when it was made.
class KernelArguments {
 public:
  KernelArguments(std::vector<std::size_t> offsets, std::vector<std::byte> bytes)
      : offsets_(std::move(offsets)), bytes_(std::move(bytes)) {}

  // Argument `index` as a value; its size must be the one that the kernel declared.
  template <class Value>
  [[nodiscard]] Value get(std::size_t index) const {
    Value value;
    std::memcpy(&value, bytes_.data() + offsets_.at(index), sizeof value);
    return value;
  }

 private:
  std::vector<std::size_t> offsets_;
  std::vector<std::byte> bytes_;
};

// Device addresses that a launch touches. Touching any others is what a real device answers with a fault.
struct KernelView {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool write = false;
};

struct KernelShape {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_memory_bytes = 0;
};

enum class KernelProgress {
  done,
  again,  // not finished, as a kernel that spins on a flag: called again later, while other streams go on
};

// One call of a kernel's function: `windows[i]` is where the bytes of view i can be touched, with the rights that the
// launch's device has there, until the function returns.
struct KernelCall {
  const KernelArguments& arguments;
  const KernelShape& shape;
  std::span<std::byte* const> windows;
};

// A kernel. Its functions are called from any thread, also for several launches at once.
struct HostKernel {
  std::string name;
  std::vector<std::size_t> argument_bytes;  // the size of each argument, in order
  std::function<std::vector<KernelView>(const KernelArguments&)> views;
  std::function<KernelProgress(const KernelCall&)> run;
};

}  // namespace cuvmm::emulator
