// Makes the n-th memory allocation or the n-th system call of a kind fail, of one thread and while that is asked for.
//
// operator new is this program's own; the system calls are wrapped by the linker (CMakeLists.txt), so that only those
// of the library and of the emulated driver are counted, and not those that the C++ library makes for itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cuvmm::test {

enum class FaultKind : unsigned char {
  allocation,  // operator new, aligned_alloc
  mmap,
  munmap,
  mprotect,
  madvise,
  memfd_create,
  ftruncate,
  fallocate,
  pipe,
  fstat,
  poll,
  open,
  socket,
  connect,
  send,
  receive,
  duplicate,    // fcntl with F_DUPFD
  thread,       // std::thread
  driver_call,  // which FaultInjectingDriver fails; here for the sums
};
inline constexpr std::size_t fault_kind_count = 19;

[[nodiscard]] const char* name_of(FaultKind kind) noexcept;

// Those that the operating system answers.
inline constexpr std::array system_calls = {
    FaultKind::mmap,      FaultKind::munmap,    FaultKind::mprotect, FaultKind::madvise, FaultKind::memfd_create,
    FaultKind::ftruncate, FaultKind::fallocate, FaultKind::pipe,     FaultKind::fstat,   FaultKind::poll,
    FaultKind::open,      FaultKind::socket,    FaultKind::connect,  FaultKind::send,    FaultKind::receive,
    FaultKind::duplicate, FaultKind::thread,
};

// Whether a kind fails for want of descriptors (EMFILE), which must never be told as a lack of memory.
[[nodiscard]] bool needs_descriptor(FaultKind kind) noexcept;

// As long as it lives, the calling thread's n-th call of the kind fails (counted from 1), and none other; with
// `lasting`, that one and every later one.
class FaultPoint {
 public:
  FaultPoint(FaultKind kind, std::uint64_t call, bool lasting = false) noexcept;
  ~FaultPoint();
  FaultPoint(const FaultPoint&) = delete;
  FaultPoint& operator=(const FaultPoint&) = delete;

  // Whether there was an n-th call.
  [[nodiscard]] bool happened() const noexcept { return happened_; }

  // Counts a call of that kind; true if it has to fail.
  bool due(FaultKind kind) noexcept;

 private:
  FaultKind kind_;
  std::uint64_t left_;
  bool lasting_;
  bool happened_ = false;
};

// Blocks of operator new that are not given back, of all threads.
[[nodiscard]] std::int64_t live_blocks() noexcept;

// Address space that wrapped calls of mmap took and wrapped calls of munmap have not given back, in bytes.
[[nodiscard]] std::int64_t mapped_bytes() noexcept;

// What the operating system has of this process, of what the emulated driver can leak.
struct ProcessState {
  std::string descriptors;       // open ones, but those of the next: "0 1 2 5 "
  std::size_t memory_files = 0;  // the emulated driver's, with the bytes of memory: kept once they are made
  std::size_t memory_views = 0;  // mappings of those, wherever the system puts them
  std::size_t host_views = 0;    // at device addresses: what the host may touch
  std::int64_t mapped = 0;       // mapped_bytes()

  [[nodiscard]] static ProcessState now();
  friend bool operator==(const ProcessState&, const ProcessState&) = default;
};
[[nodiscard]] std::string to_string(const ProcessState& state);

// How many fault points of each kind were tried; printed when the program ends.
class FaultPointTally {
 public:
  static void add(FaultKind kind) noexcept;
  static void add_operation() noexcept;
  [[nodiscard]] static std::string text();
};

}  // namespace cuvmm::test
