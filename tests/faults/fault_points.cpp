#include "fault_points.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>
#include <vector>

namespace cuvmm::test {
namespace {

struct KindFacts {
  const char* name;
  int error;  // errno of the failure
};
constexpr KindFacts facts[fault_kind_count] = {
    {"allocation", ENOMEM},   {"mmap", ENOMEM},      {"munmap", ENOMEM},    {"mprotect", ENOMEM}, {"madvise", ENOMEM},
    {"memfd_create", EMFILE}, {"ftruncate", ENOSPC}, {"fallocate", ENOSPC}, {"pipe", EMFILE},     {"fstat", ENOMEM},
    {"poll", ENOMEM},         {"open", EMFILE},      {"socket", EMFILE},    {"connect", EAGAIN},  {"send", ENOBUFS},
    {"receive", ENOMEM},      {"duplicate", EMFILE}, {"thread", EAGAIN},    {"driver call", 0},
};
const KindFacts& facts_of(FaultKind kind) {
  return facts[static_cast<std::size_t>(kind)];
}

thread_local FaultPoint* armed = nullptr;
std::atomic<std::int64_t> blocks{0};
std::atomic<std::int64_t> mapped{0};
std::array<std::atomic<std::uint64_t>, fault_kind_count> tried{};
std::atomic<std::uint64_t> operations{0};

// Whether this call has to fail; errno is then set.
bool fails(FaultKind kind) noexcept {
  if (armed == nullptr || !armed->due(kind)) return false;
  errno = facts_of(kind).error;
  return true;
}

void* allocate(std::size_t bytes) {
  if (fails(FaultKind::allocation)) throw std::bad_alloc();
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

class PrintsTally final : public testing::Environment {
 public:
  void TearDown() override { std::printf("%s\n", FaultPointTally::text().c_str()); }
};
[[maybe_unused]] const auto* const prints_tally = testing::AddGlobalTestEnvironment(new PrintsTally);

}  // namespace

const char* name_of(FaultKind kind) noexcept {
  return facts_of(kind).name;
}

bool needs_descriptor(FaultKind kind) noexcept {
  return facts_of(kind).error == EMFILE;
}

FaultPoint::FaultPoint(FaultKind kind, std::uint64_t call, bool lasting) noexcept
    : kind_(kind), left_(call), lasting_(lasting) {
  armed = this;
}

FaultPoint::~FaultPoint() {
  armed = nullptr;
}

bool FaultPoint::due(FaultKind kind) noexcept {
  if (kind != kind_) return false;
  if (left_ > 0) {
    if (--left_ > 0) return false;
    happened_ = true;
    return true;
  }
  return lasting_;
}

std::int64_t live_blocks() noexcept {
  return blocks.load();
}

std::int64_t mapped_bytes() noexcept {
  return mapped.load();
}

ProcessState ProcessState::now() {
  ProcessState state;
  std::vector<int> open;
  if (DIR* directory = ::opendir("/proc/self/fd"); directory != nullptr) {
    while (const dirent* entry = ::readdir(directory))
      if (const int number = std::atoi(entry->d_name); entry->d_name[0] != '.' && number != ::dirfd(directory))
        open.push_back(number);
    ::closedir(directory);
  }
  std::sort(open.begin(), open.end());
  for (const int number : open) {
    char target[64] = {};
    (void)::readlink(("/proc/self/fd/" + std::to_string(number)).c_str(), target, sizeof target - 1);
    if (std::string_view(target).starts_with("/memfd:cuvmm"))
      ++state.memory_files;
    else
      state.descriptors += std::to_string(number) + " ";
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:cuvmm") != std::string::npos) {
      constexpr unsigned long long devices_end = 0x7000'0000'0000;  // the system places nothing by itself below
      ++(std::strtoull(line.c_str(), nullptr, 16) < devices_end ? state.host_views : state.memory_views);
    }
  state.mapped = mapped_bytes();
  return state;
}

std::string to_string(const ProcessState& state) {
  return "descriptors " + state.descriptors + ", " + std::to_string(state.memory_files) + " files and " +
         std::to_string(state.memory_views) + " views of memory, " + std::to_string(state.host_views) +
         " of the host, " + std::to_string(state.mapped) + " bytes mapped";
}

void FaultPointTally::add(FaultKind kind) noexcept {
  tried[static_cast<std::size_t>(kind)].fetch_add(1);
}

void FaultPointTally::add_operation() noexcept {
  operations.fetch_add(1);
}

std::string FaultPointTally::text() {
  std::uint64_t sum = 0;
  std::string parts;
  for (std::size_t kind = 0; kind < fault_kind_count; ++kind) {
    const std::uint64_t count = tried[kind].load();
    if (count == 0) continue;
    sum += count;
    parts += std::string(parts.empty() ? "" : ", ") + facts[kind].name + " " + std::to_string(count);
  }
  return "fault points: " + std::to_string(sum) + " in " + std::to_string(operations.load()) + " sweeps (" + parts +
         ")";
}

}  // namespace cuvmm::test

// Not inlined: the compiler would see malloc on one side, operator delete on the other, and take them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return cuvmm::test::allocate(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return cuvmm::test::allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  cuvmm::test::release(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  cuvmm::test::release(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  cuvmm::test::release(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  cuvmm::test::release(memory);
}

// What the linker puts in the place of the calls (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the linker's names
using cuvmm::test::FaultKind;

#define CUVMM_WRAPPED(kind, result, failed, name, parameters, arguments) \
  extern "C" result __real_##name parameters;                            \
  extern "C" result __wrap_##name parameters {                           \
    if (cuvmm::test::fails(FaultKind::kind)) return failed;              \
    return __real_##name arguments;                                      \
  }

CUVMM_WRAPPED(allocation, void*, nullptr, aligned_alloc, (std::size_t alignment, std::size_t bytes), (alignment, bytes))
CUVMM_WRAPPED(mprotect, int, -1, mprotect, (void* place, std::size_t bytes, int rights), (place, bytes, rights))
CUVMM_WRAPPED(madvise, int, -1, madvise, (void* place, std::size_t bytes, int advice), (place, bytes, advice))
CUVMM_WRAPPED(memfd_create, int, -1, memfd_create, (const char* name, unsigned flags), (name, flags))
CUVMM_WRAPPED(ftruncate, int, -1, ftruncate, (int file, off_t bytes), (file, bytes))
CUVMM_WRAPPED(fallocate, int, -1, fallocate, (int file, int mode, off_t at, off_t bytes), (file, mode, at, bytes))
CUVMM_WRAPPED(pipe, int, -1, pipe2, (int* ends, int flags), (ends, flags))
CUVMM_WRAPPED(fstat, int, -1, fstat, (int file, struct stat* status), (file, status))
CUVMM_WRAPPED(poll, int, -1, poll, (pollfd * files, nfds_t count, int wait), (files, count, wait))
CUVMM_WRAPPED(open, int, -1, open, (const char* path, int flags, mode_t mode), (path, flags, mode))
CUVMM_WRAPPED(open, int, -1, openat, (int folder, const char* path, int flags, mode_t mode),
              (folder, path, flags, mode))
CUVMM_WRAPPED(socket, int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
CUVMM_WRAPPED(connect, int, -1, connect, (int socket, const sockaddr* address, socklen_t bytes),
              (socket, address, bytes))
CUVMM_WRAPPED(send, ssize_t, -1, sendmsg, (int socket, const msghdr* message, int flags), (socket, message, flags))
CUVMM_WRAPPED(receive, ssize_t, -1, recvmsg, (int socket, msghdr* message, int flags), (socket, message, flags))

extern "C" int __real_fcntl(int file, int command, long argument);
extern "C" int __wrap_fcntl(int file, int command, long argument) {
  const bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (duplicates && cuvmm::test::fails(FaultKind::duplicate)) return -1;
  return __real_fcntl(file, command, argument);
}

extern "C" void* __real_mmap(void* place, std::size_t bytes, int rights, int flags, int file, off_t offset);
extern "C" void* __wrap_mmap(void* place, std::size_t bytes, int rights, int flags, int file, off_t offset) {
  if (cuvmm::test::fails(FaultKind::mmap)) return MAP_FAILED;
  void* const made = __real_mmap(place, bytes, rights, flags, file, offset);
  // What is put over a mapping (MAP_FIXED alone) takes no addresses.
  if (made != MAP_FAILED && (flags & MAP_FIXED) == 0) cuvmm::test::mapped += static_cast<std::int64_t>(bytes);
  return made;
}

extern "C" int __real_munmap(void* place, std::size_t bytes);
extern "C" int __wrap_munmap(void* place, std::size_t bytes) {
  if (cuvmm::test::fails(FaultKind::munmap)) return -1;
  const int answer = __real_munmap(place, bytes);
  if (answer == 0) cuvmm::test::mapped -= static_cast<std::int64_t>(bytes);
  return answer;
}

// std::thread::_M_start_thread(std::thread::_State_ptr, void (*)()), by which every std::thread begins.
#define CUVMM_START_THREAD(prefix) \
  prefix##_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE
extern "C" void CUVMM_START_THREAD(__real_)(void* thread, void* state, void* depends);
extern "C" void CUVMM_START_THREAD(__wrap_)(void* thread, void* state, void* depends) {
  if (cuvmm::test::fails(FaultKind::thread)) throw std::system_error(errno, std::generic_category());
  CUVMM_START_THREAD(__real_)(thread, state, depends);
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)
