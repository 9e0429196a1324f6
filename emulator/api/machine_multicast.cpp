// Multicast objects: waiting for their devices, and the bytes behind their addresses.
#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "emulator/api/machine.hpp"
#include "emulator/execution/scheduling.hpp"

namespace cuvmm::emulator::api {
namespace {

using Clock = std::chrono::steady_clock;

// How many threads the process has besides those on which emulated work runs, which may not call the driver. Where that
// cannot be told, there are many.
std::size_t threads_that_may_call() noexcept {
  DIR* const threads = ::opendir("/proc/self/task");
  if (threads == nullptr) return ~std::size_t{0};
  std::size_t count = 0;
  while (const dirent* const entry = ::readdir(threads))
    if (entry->d_name[0] != '.') ++count;
  ::closedir(threads);
  const std::size_t workers = execution::worker_threads();
  return count > workers ? count - workers : 1;
}

}  // namespace

// Tries, without the lock in between, until all devices of the object were added or nobody can be expected to add them.
template <class Attempt>
Answer Machine::once_complete(Attempt&& attempt) {
  constexpr std::chrono::milliseconds shortest_pause(1), longest_pause(20);
  const auto deadline = Clock::now() + std::chrono::milliseconds(configuration_.multicast_wait);
  bool alone = false;  // looked at once it matters, since that makes system calls
  for (std::chrono::milliseconds pause(0); true; pause = std::clamp(2 * pause, shortest_pause, longest_pause)) {
    Answer answer = with_memory([&](model::VirtualMemory& memory) { return attempt(memory, alone); });
    const bool waits = answer.code == CUDA_ERROR_NOT_READY && answer.rule == Rule::multicast_team_complete;
    if (!waits) return answer;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0)
      return {
          CUDA_ERROR_TIMEOUT, Rule::multicast_team_complete,
          fmt::format("{} for longer than the {} ms of multicast-wait", answer.detail, configuration_.multicast_wait)};
    std::this_thread::sleep_for(std::min(pause, left));
    alone = threads_that_may_call() <= 1;
  }
}

Answer Machine::map(CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) {
  return once_complete([&](model::VirtualMemory& memory, bool alone) {
    return memory.map(address, bytes, offset, handle, flags, alone);
  });
}

Answer Machine::bind_multicast(const model::MulticastBind& wanted) {
  return once_complete([&](model::VirtualMemory& memory, bool alone) { return memory.bind(wanted, alone); });
}

Answer Machine::access_multicast(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write,
                                 Access& found) {
  const std::lock_guard lock(mutex_);
  model::Segment segment;
  if (Answer answer = virtual_memory_.resolve_multicast(address, bytes, who, write, &segment); !answer.ok())
    return answer;
  const std::size_t devices = segment.allocation->multicast_devices;
  std::vector<std::vector<memory::Piece>> replicas(devices);
  std::vector<std::uint64_t> reached(devices, segment.offset);  // up to where a replica's pieces go
  for (const memory::MulticastPiece& piece : physical_->multicast_pieces(*segment.allocation, segment.offset, bytes)) {
    if (piece.offset != reached[piece.member]) break;
    replicas[piece.member].push_back({piece.extent.file, piece.extent.offset, nullptr, piece.bytes});
    reached[piece.member] += piece.bytes;
  }
  const auto gap =
      std::find_if(reached.begin(), reached.end(), [&](std::uint64_t end) { return end < segment.offset + bytes; });
  if (gap != reached.end())
    return {CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multimem_address,
            fmt::format("{} bytes at {:#x}: device {} of the team has nothing bound {} bytes into the object", bytes,
                        address, gap - reached.begin(), *gap)};
  found.pinned_.reserve(1);
  found.machine_ = this;
  found.replicas_ = std::move(replicas);
  store_.add_reference(*segment.allocation);
  found.pinned_.push_back(segment.allocation);
  return {};
}

bool Machine::still_bound(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write,
                          const Access& access) {
  try {
    Access now;
    return access_multicast(address, bytes, who, write, now).ok() && now.replicas() == access.replicas();
  } catch (const std::bad_alloc&) {
    return true;  // no memory to look with, and what was done cannot be done again
  }
}

}  // namespace cuvmm::emulator::api
