#include "replay/player.hpp"

#include <algorithm>
#include <chrono>

namespace cuvmm::replay {
namespace {

using Clock = std::chrono::steady_clock;

class Player {
 public:
  Player(const traces::AllocationTrace& trace, Allocator& allocator)
      : trace_(trace), allocator_(allocator), addresses_(trace.allocations.size()) {}

  void play(std::size_t index) {
    const traces::AllocationEvent& event = trace_.events[index];
    if (event.frees) {
      free(event.allocation);
    } else {
      allocate(index, event.allocation);
    }
    const std::uint64_t physical = allocator_.physical_bytes();
    played_.peak_physical = std::max(played_.peak_physical, physical);
    played_.physical.push_back(physical);
    played_.live.push_back(live_);
  }

  void look() {
    played_.held = allocator_.held();
    for (std::size_t i = 0; i < addresses_.size(); ++i)
      if (addresses_[i]) played_.allocated.push_back({*addresses_[i], trace_.allocations[i].bytes});
    const auto lower = [](const Extent& one, const Extent& other) { return one.address < other.address; };
    std::sort(played_.held.begin(), played_.held.end(), lower);
    std::sort(played_.allocated.begin(), played_.allocated.end(), lower);
  }

  Played take() { return std::move(played_); }

 private:
  void allocate(std::size_t index, std::uint32_t number) {
    const auto& [bytes, stream] = trace_.allocations[number];
    const auto begin = Clock::now();
    const auto address = allocator_.allocate(bytes, stream);
    took(begin);
    if (!address) return refuse(index, bytes, address.failure());
    ++played_.allocations;
    addresses_[number] = *address;
    live_ += bytes;
    played_.peak_live = std::max(played_.peak_live, live_);
  }
  void free(std::uint32_t number) {
    if (!addresses_[number]) return;  // it was refused
    const auto& [bytes, stream] = trace_.allocations[number];
    const auto begin = Clock::now();
    allocator_.free(*addresses_[number], stream);
    took(begin);
    ++played_.frees;
    addresses_[number].reset();
    live_ -= bytes;
  }
  void refuse(std::size_t index, std::uint64_t bytes, const Failure& failure) {
    if (failure.kind != ErrorKind::out_of_device_memory) raise(failure);
    if (played_.refused++ == 0) played_.first_refused = {index, bytes, live_, allocator_.physical_bytes()};
  }
  void took(Clock::time_point begin) {
    played_.milliseconds += std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  const traces::AllocationTrace& trace_;
  Allocator& allocator_;
  std::vector<std::optional<DeviceAddress>> addresses_;  // of what is allocated
  std::uint64_t live_ = 0;
  Played played_;
};

}  // namespace

Played play(const traces::AllocationTrace& trace, Allocator& allocator, const driver::CountingDriver& counting,
            std::size_t look_at, const std::function<void()>& step) {
  const driver::CallCounts before = counting.snapshot();
  Player player(trace, allocator);
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    player.play(i);
    if (i == look_at) player.look();
    if (step) step();
  }
  Played played = player.take();
  played.calls = counting.snapshot() - before;
  return played;
}

}  // namespace cuvmm::replay
