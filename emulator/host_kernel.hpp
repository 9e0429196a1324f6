// Kernels that the emulated driver can run: host functions under a kernel's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cuvmm::emulator {

// The arguments of one launch, copied when it was made.
class KernelArguments {
 public:
  KernelArguments(std::vector<std::size_t> offsets, std::vector<std::byte> bytes)
      : offsets_(std::move(offsets)), bytes_(std::move(bytes)) {}

  // Argument `index` as a value; its size must be the one that the kernel declared. Throws std::out_of_range if the
  // kernel declared less.
  template <class Value>
  [[nodiscard]] Value get(std::size_t index) const {
    const std::size_t begin = offsets_.at(index);
    const std::size_t end = index + 1 < offsets_.size() ? offsets_[index + 1] : bytes_.size();
    if (end - begin < sizeof(Value))
      throw std::out_of_range("a kernel's argument is smaller than the value read from it");
    Value value{};
    std::memcpy(&value, bytes_.data() + begin, sizeof value);
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
  std::uint64_t alignment = 1;  // what the address must be a multiple of; a device faults where it is not
  // The addresses are a multicast object's, which are touched by emulated multimem alone (emulator/multimem.hpp).
  bool multimem = false;
};

// What a multicast address stands for: the same bytes in the memory of each device of the team.
struct MulticastWindow {
  std::span<std::byte* const> replicas;  // in the order in which the devices were added
  std::uint64_t bytes = 0;
};

// Sees the accesses that a kernel makes through emulator/multimem.hpp. `view` is the number of one of its views.
class AliasChecker {
 public:
  AliasChecker() = default;
  AliasChecker(const AliasChecker&) = delete;
  AliasChecker& operator=(const AliasChecker&) = delete;
  AliasChecker(AliasChecker&&) = delete;
  AliasChecker& operator=(AliasChecker&&) = delete;
  virtual ~AliasChecker() = default;
  virtual void wrote(std::size_t view, std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void reads(std::size_t view, std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void alias_fence() = 0;  // fence.proxy.alias
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
// launch's device has there, until the function returns. Of a multimem view the window is null, and `multicasts[i]` is
// what emulated multimem works on.
struct KernelCall {
  const KernelArguments& arguments;
  const KernelShape& shape;
  std::span<std::byte* const> windows;
  std::uint64_t tries = 0;                      // how often this launch was called before and answered `again`
  std::span<const MulticastWindow> multicasts;  // one a view
  AliasChecker* aliases = nullptr;              // null where nobody checks
};

// Memory as one block of a running kernel reaches it: at the addresses of the device, each access with the rights that
// the launch's device has at that moment. What a device cannot survive (an address that is not mapped, or not for this,
// or no multiple of the access's size) is thrown, has to pass through the kernel, and ends the launch as on a device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  DeviceMemory(DeviceMemory&&) = delete;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  virtual ~DeviceMemory() = default;

  // Where the bytes of one access, 1, 2, 4, 8 or 16, can be touched until the block gives way. What is changed in one
  // step (an atomic addition) is written. Other blocks and devices touch them at the same time: use atomics.
  virtual const std::byte* read(std::uint64_t address, std::size_t bytes) = 0;
  virtual std::byte* write(std::uint64_t address, std::size_t bytes) = 0;
  // The same of a multicast address, for one of the functions of emulator/multimem.hpp, at offset 0 of the window,
  // which is valid until the next access. A store and a reduction write.
  virtual MulticastWindow read_multicast(std::uint64_t address, std::size_t bytes) = 0;
  virtual MulticastWindow write_multicast(std::uint64_t address, std::size_t bytes) = 0;
  virtual void alias_fence() = 0;  // fence.proxy.alias

  // Lets other blocks, and other streams, go on: to be called between looks at memory that somebody else is to change.
  // Never within a catch block. What it throws when the launch is given up has to pass as well.
  virtual void give_way() = 0;
};

// One block of a launch.
struct BlockCall {
  const KernelArguments& arguments;
  const KernelShape& shape;
  unsigned block = 0;   // of the grid, the first axis running fastest
  unsigned blocks = 1;  // how many there are
  DeviceMemory& memory;
};

// A kernel, of one of two kinds. `run` is called for the whole launch, with its views opened, again and again until it
// is done. `run_block`, where it is given, is called instead, once for each block; the blocks of a launch take turns as
// they give way, each with a stack of its own, of 256 KiB, so that they may wait for one another and for other devices.
// Then `views` only says what a launch may touch, for those who unmap it; null addresses are left out.
//
// The functions are called from any thread, also for several launches at once. They must not call the driver, which
// answers NOT_PERMITTED then, as it does within a host function.
struct HostKernel {
  std::string name;
  std::vector<std::size_t> argument_bytes;  // the size of each argument, in order
  std::function<std::vector<KernelView>(const KernelArguments&)> views;
  std::function<KernelProgress(const KernelCall&)> run;
  std::function<void(const BlockCall&)> run_block = {};
};

}  // namespace cuvmm::emulator
