// cuMemAllocAsync, on a pool that keeps what is freed.
#include <map>

#include "driver/call.hpp"
#include "replay/allocator.hpp"
#include "replay/streams.hpp"

namespace cuvmm::replay {
namespace {

using driver::call;
using driver::EntryPoint;
using driver::try_call;

class OrderedAllocator final : public Allocator {
 public:
  explicit OrderedAllocator(const Bench& bench) : bench_(bench), streams_(bench.aside, bench.streams) {
    abi::CUmemPoolProps properties{};
    properties.allocType = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0};
    call<EntryPoint::cuMemPoolCreate>(bench_.aside.interface(), &pool_, &properties);
    std::uint64_t all = UINT64_MAX;
    bench_.aside.interface().cuMemPoolSetAttribute(pool_, abi::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
  }
  OrderedAllocator(const OrderedAllocator&) = delete;
  OrderedAllocator& operator=(const OrderedAllocator&) = delete;
  OrderedAllocator(OrderedAllocator&&) = delete;
  OrderedAllocator& operator=(OrderedAllocator&&) = delete;
  ~OrderedAllocator() override {
    driver::Interface& aside = bench_.aside.interface();
    for (const auto& [address, stream] : live_) aside.cuMemFreeAsync(address, streams_[stream]);
    for (const auto each : streams_.all()) aside.cuStreamSynchronize(each);
    aside.cuMemPoolTrimTo(pool_, 0);
    aside.cuMemPoolDestroy(pool_);
  }

  Result<DeviceAddress> allocate(std::size_t bytes, std::uint32_t stream) override {
    auto allocated = try_allocate(bytes, stream);
    if (allocated || allocated.failure().kind != ErrorKind::out_of_device_memory) return allocated;
    // What other streams have freed is this one's once they have come so far, and what fits nothing can be given back.
    for (const auto each : streams_.all()) call<EntryPoint::cuStreamSynchronize>(bench_.driver.interface(), each);
    call<EntryPoint::cuMemPoolTrimTo>(bench_.driver.interface(), pool_, 0U);
    return try_allocate(bytes, stream);
  }
  void free(DeviceAddress address, std::uint32_t stream) override {
    call<EntryPoint::cuMemFreeAsync>(bench_.driver.interface(), address.value, streams_[stream]);
    live_.erase(address.value);
  }
  std::uint64_t physical_bytes() const override {
    std::uint64_t bytes = 0;
    call<EntryPoint::cuMemPoolGetAttribute>(bench_.aside.interface(), pool_, abi::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                            static_cast<void*>(&bytes));
    return bytes;
  }

 private:
  Result<DeviceAddress> try_allocate(std::size_t bytes, std::uint32_t stream) {
    abi::CUdeviceptr address = 0;
    auto done = try_call<EntryPoint::cuMemAllocFromPoolAsync>(bench_.driver.interface(), &address, bytes, pool_,
                                                              streams_[stream]);
    if (!done) return done.failure();
    live_.emplace(address, stream);
    return DeviceAddress(address);
  }

  Bench bench_;
  Streams streams_;
  abi::CUmemoryPool pool_ = nullptr;
  std::map<abi::CUdeviceptr, std::uint32_t> live_;  // with their streams
};

}  // namespace

std::unique_ptr<Allocator> make_ordered_allocator(const Bench& bench) {
  return std::make_unique<OrderedAllocator>(bench);
}

}  // namespace cuvmm::replay
