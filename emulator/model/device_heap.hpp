// Memory of cuMemAlloc: physical memory and addresses in one, open to its own device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "emulator/answer.hpp"
#include "emulator/model/address_space.hpp"
#include "emulator/model/physical_store.hpp"
#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {

// Who an allocation belongs to: it goes when its context goes.
using ContextId = std::uint64_t;

struct HeapAllocation {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;  // as asked for
  int device = 0;
  ContextId owner = 0;
  CUdeviceptr block = 0;
  std::uint32_t opened = 0;  // how often open() answered it; 0: it was allocated
};

// Small allocations share blocks of one granule, at multiples of 512 bytes; larger ones have a block each. Not
// thread-safe.
class DeviceHeap {
 public:
  DeviceHeap(std::uint64_t granularity, PhysicalStore& store, AddressSpace& addresses)
      : granularity_(granularity), store_(store), addresses_(addresses) {}

  Answer allocate(CUdeviceptr* address, std::uint64_t bytes, int device, ContextId owner);
  Answer free(CUdeviceptr address);

  // Gives memory of another process's heap an address, the same one each time `owner` opens it until it has closed it
  // as often. Takes a reference to the memory.
  Answer open(CUdeviceptr* address, const Segment& range, ContextId owner);
  Answer close(CUdeviceptr address);
  void free_all_of(ContextId owner) noexcept;

  // The allocation that contains the address, or null.
  [[nodiscard]] const HeapAllocation* find(CUdeviceptr address) const;

  // The memory of the whole allocation that contains the address; nothing unless it was allocated here.
  [[nodiscard]] std::optional<Segment> find_own(CUdeviceptr address) const;

  // Appends the memory behind the range, all of which must lie in one allocation.
  Answer resolve(CUdeviceptr address, std::uint64_t bytes, std::vector<Segment>& segments) const;

  [[nodiscard]] std::size_t live_allocations() const { return allocations_.size(); }

 private:
  struct Block {
    Allocation* memory = nullptr;
    std::uint64_t bytes = 0;
    int device = 0;
    ContextId owner = 0;
    bool shared = false;
    AddressSpace room;  // offsets within the block that are free, if it is shared
    std::size_t live = 0;
  };

  using Blocks = std::map<CUdeviceptr, Block>;

  Answer place(HeapAllocation& allocation);
  Answer add_block(std::uint64_t bytes, int device, ContextId owner, bool shared, Blocks::iterator* added);
  std::optional<CUdeviceptr> take_addresses(std::uint64_t bytes, Allocation& memory);
  [[nodiscard]] HeapAllocation* find_opened(const Segment& range, ContextId owner);
  void remove(std::map<CUdeviceptr, HeapAllocation>::iterator allocation) noexcept;
  bool take_from(Blocks::iterator block, HeapAllocation& allocation);
  void release_block(Blocks::iterator block) noexcept;

  std::uint64_t granularity_;
  PhysicalStore& store_;
  AddressSpace& addresses_;
  Blocks blocks_;
  CUdeviceptr next_block_ = 0;  // where the latest block ends: addresses just freed are not given out again at once
  std::map<CUdeviceptr, HeapAllocation> allocations_;
};

}  // namespace cuvmm::emulator::model
