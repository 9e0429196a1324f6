#include "bench/thread_counters.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::bench {
namespace {

struct State {
  int depth = 0;  // of driver calls
  std::uint64_t allocations = 0;
  std::uint64_t instructions_within = 0;
  std::uint64_t entered_at = 0;
};
thread_local State state;

// The calling thread's counter of instructions, opened when it is first asked for.
class InstructionCounter {
 public:
  InstructionCounter() {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.size = sizeof attributes;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    descriptor_ = UniqueDescriptor(
        static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
    if (!descriptor_) why_not_ = std::string("perf_event_open: ") + std::strerror(errno);
  }
  [[nodiscard]] std::optional<std::uint64_t> now() const noexcept {
    std::uint64_t count = 0;
    if (!descriptor_ || ::read(descriptor_.get(), &count, sizeof count) != sizeof count) return std::nullopt;
    return count;
  }
  [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }

 private:
  UniqueDescriptor descriptor_;
  std::string why_not_;
};

const InstructionCounter& instruction_counter() {
  thread_local const InstructionCounter counter;
  return counter;
}

}  // namespace

ThreadCounters thread_counters() noexcept {
  const auto instructions = instruction_counter().now();
  return {state.allocations, instructions ? std::optional(*instructions - state.instructions_within) : std::nullopt};
}

const std::string& why_no_instructions() {
  return instruction_counter().why_not();
}

WithinDriver::WithinDriver() noexcept {
  if (state.depth++ == 0) state.entered_at = instruction_counter().now().value_or(0);
}

WithinDriver::~WithinDriver() {
  if (--state.depth == 0) state.instructions_within += instruction_counter().now().value_or(0) - state.entered_at;
}

}  // namespace cuvmm::bench

// The program's allocations are counted where they are made: these take the place of the library's own.
namespace {

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  if (cuvmm::bench::state.depth == 0) ++cuvmm::bench::state.allocations;
  if (bytes == 0) bytes = 1;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads): those of arrays end in these, or stay among themselves
void* operator new(std::size_t bytes) {
  void* const memory = counted(bytes, 0);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* const memory = counted(bytes, static_cast<std::size_t>(alignment));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// A sanitizer has its own of these, which do not end in those above.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-new-delete-overloads)
