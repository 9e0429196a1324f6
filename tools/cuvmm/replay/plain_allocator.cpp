// cuMemAlloc for each allocation.
#include <set>

#include "driver/call.hpp"
#include "replay/allocator.hpp"

namespace cuvmm::replay {
namespace {

using driver::call;
using driver::EntryPoint;
using driver::try_call;

class PlainAllocator final : public Allocator {
 public:
  explicit PlainAllocator(const Bench& bench) : bench_(bench), free_at_first_(free_bytes()) {}
  PlainAllocator(const PlainAllocator&) = delete;
  PlainAllocator& operator=(const PlainAllocator&) = delete;
  PlainAllocator(PlainAllocator&&) = delete;
  PlainAllocator& operator=(PlainAllocator&&) = delete;
  ~PlainAllocator() override {
    for (const auto address : live_) bench_.aside.interface().cuMemFree(address);
  }

  Result<DeviceAddress> allocate(std::size_t bytes, std::uint32_t /*stream*/) override {
    abi::CUdeviceptr address = 0;
    if (auto done = try_call<EntryPoint::cuMemAlloc>(bench_.driver.interface(), &address, bytes); !done)
      return done.failure();
    live_.insert(address);
    return DeviceAddress(address);
  }
  void free(DeviceAddress address, std::uint32_t /*stream*/) override {
    call<EntryPoint::cuMemFree>(bench_.driver.interface(), address.value);
    live_.erase(address.value);
  }

  // The driver puts small ones together, so that only it can tell.
  std::uint64_t physical_bytes() const override {
    const std::uint64_t now = free_bytes();
    return now < free_at_first_ ? free_at_first_ - now : 0;
  }

 private:
  std::uint64_t free_bytes() const {
    std::size_t free = 0, total = 0;
    call<EntryPoint::cuMemGetInfo>(bench_.aside.interface(), &free, &total);
    return free;
  }

  Bench bench_;
  std::uint64_t free_at_first_;
  std::set<abi::CUdeviceptr> live_;
};

}  // namespace

std::unique_ptr<Allocator> make_plain_allocator(const Bench& bench) {
  return std::make_unique<PlainAllocator>(bench);
}

}  // namespace cuvmm::replay
