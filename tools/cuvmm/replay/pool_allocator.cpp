// This library's own pool.
#include <map>

#include "cuvmm/pool/pool.hpp"
#include "replay/allocator.hpp"
#include "replay/streams.hpp"

namespace cuvmm::replay {
namespace {

class PoolAllocator final : public Allocator {
 public:
  explicit PoolAllocator(const Bench& bench)
      : streams_(bench.aside, bench.streams), pool_(Pool::create(bench.driver)) {}
  PoolAllocator(const PoolAllocator&) = delete;
  PoolAllocator& operator=(const PoolAllocator&) = delete;
  PoolAllocator(PoolAllocator&&) = delete;
  PoolAllocator& operator=(PoolAllocator&&) = delete;
  ~PoolAllocator() override {
    for (const auto& [address, stream] : live_) static_cast<void>(pool_.try_free(address, streams_[stream]));
  }

  Result<DeviceAddress> allocate(std::size_t bytes, std::uint32_t stream) override {
    auto address = pool_.try_allocate(bytes, streams_[stream]);
    if (address) live_.emplace(*address, stream);
    return address;
  }
  void free(DeviceAddress address, std::uint32_t stream) override {
    pool_.free(address, streams_[stream]);
    live_.erase(address);
  }
  std::uint64_t physical_bytes() const override { return pool_.statistics().reserved_bytes; }

 private:
  Streams streams_;
  Pool pool_;
  std::map<DeviceAddress, std::uint32_t> live_;  // with their streams
};

}  // namespace

std::unique_ptr<Allocator> make_pool_allocator(const Bench& bench) {
  return std::make_unique<PoolAllocator>(bench);
}

}  // namespace cuvmm::replay
