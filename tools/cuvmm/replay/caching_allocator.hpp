// A caching allocator without virtual memory management, as frameworks have them: a baseline to compare with.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "replay/allocator.hpp"

namespace cuvmm::replay {

// Segments of cuMemAlloc are cut into blocks. An allocation takes the smallest free block of its stream that is large
// enough, the lowest of several, and what is left of it becomes a free block again; a block that is freed joins free
// neighbours. Sizes are rounded up to 512 bytes. Small allocations (up to 1 MiB) have segments of 2 MiB of their own,
// those up to 10 MiB segments of 20 MiB, and larger ones segments of their size, rounded up to 2 MiB. A large block is
// cut only where more than 1 MiB is left. Segments are given back when there is no more memory, all that are wholly
// free, and otherwise never.
//
// A segment is one piece of address space and of memory at once: what is free in it serves what fits there, and nothing
// else. That is what the ways through virtual memory management are compared with.
class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(const Bench& bench) : bench_(bench), free_(2 * std::size_t{bench.streams}) {}
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  CachingAllocator(CachingAllocator&&) = delete;
  CachingAllocator& operator=(CachingAllocator&&) = delete;
  ~CachingAllocator() override;

  Result<DeviceAddress> allocate(std::size_t bytes, std::uint32_t stream) override;
  void free(DeviceAddress address, std::uint32_t stream) override;
  [[nodiscard]] std::uint64_t physical_bytes() const override { return held_bytes_; }
  [[nodiscard]] std::vector<Extent> held() const override;

 private:
  using Address = unsigned long long;

  struct Block {
    std::size_t bytes = 0;
    std::size_t shelf = 0;  // where it lies when it is free
    Address segment = 0;    // of which it is a part
    bool used = false;
  };
  using Blocks = std::map<Address, Block>;
  using Shelf = std::set<std::pair<std::size_t, Address>>;  // free blocks, the smallest first

  Result<Blocks::iterator> add_segment(std::size_t bytes, std::size_t shelf);
  Blocks::iterator join(Blocks::iterator block);
  void release_free_segments();

  Bench bench_;
  Blocks blocks_;
  std::vector<Shelf> free_;                  // of each stream: small ones, large ones
  std::map<Address, std::size_t> segments_;  // and their sizes
  std::uint64_t held_bytes_ = 0;
};

}  // namespace cuvmm::replay
