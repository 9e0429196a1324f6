// Memory of cuMemAllocAsync, and of graphs that allocate: which allocations there are, and whose bytes they have.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/model/answer.hpp"
#include "emulator/model/memory_pool.hpp"
#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {

// What an operation of one stream waits for that another stream does.
using Signal = std::shared_ptr<std::atomic<bool>>;

struct PoolAllocation {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;  // as asked for
  std::shared_ptr<MemoryPool> pool;
  PoolExtent extent;     // without a chunk while a graph's allocation has no memory
  std::uint64_t id = 0;  // its own for ever
  // A free that was asked for and has not run.
  std::uint64_t free_token = 0;  // 0: there is none
  StreamId freed_in = 0;
  Signal freed;            // set when it has run
  bool passed_on = false;  // somebody else has the extent by now
  // Of a graph's allocation.
  bool graph = false;
  bool live = true;        // may be touched: between its allocation node and its free alone
  bool owned = false;      // some graph still has the allocation node
  bool free_node = false;  // some graph frees it
  unsigned launches = 0;   // that allocate it and whose free has not run
  unsigned frees = 0;      // asked for, that have not run
};

// Every allocation has addresses of its own, which are nobody's as soon as its free has run, so that a use after that
// is always noticed; only the bytes behind them are used again. Not thread-safe.
class StreamOrderedMemory {
 public:
  // Makes an allocation of host memory appear in the process, or disappear. Answers false if the system refuses.
  using HostView = std::function<bool(const PoolAllocation&, bool visible)>;

  StreamOrderedMemory(std::uint64_t granularity, PhysicalStore& store, AddressSpace& addresses, HostView host_view)
      : granularity_(granularity), store_(store), addresses_(addresses), host_view_(std::move(host_view)) {}
  StreamOrderedMemory(const StreamOrderedMemory&) = delete;
  StreamOrderedMemory& operator=(const StreamOrderedMemory&) = delete;
  ~StreamOrderedMemory() = default;

  [[nodiscard]] std::shared_ptr<MemoryPool> create_pool(Place place, std::uint64_t max_bytes);
  // The pool takes no new allocations and goes with its last one.
  void destroy_pool(const std::shared_ptr<MemoryPool>& pool) noexcept;

  // `wait_for`: what the stream must wait for before the memory may be used; null if it need not.
  Answer allocate(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool, StreamId stream,
                  Signal* wait_for);
  // Asks for the free: from here on nobody may ask for it again. `token` is what finish_free takes.
  Answer begin_free(CUdeviceptr address, StreamId stream, std::uint64_t* token);
  // The free does not come to pass after all.
  void cancel_free(CUdeviceptr address, std::uint64_t token) noexcept;
  // The free runs, once: the addresses are nobody's.
  void finish_free(CUdeviceptr address, std::uint64_t token) noexcept;

  // Memory of graphs: addresses for as long as a graph has the allocation node, bytes from a launch to the free.
  Answer promise(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool);
  Answer add_free_node(CUdeviceptr address);
  // A launch that allocates is about to begin. Refused while the memory of the launch before was not freed, unless
  // `reuse`. `begun` says whether cancel_launch takes this back.
  Answer begin_launch(CUdeviceptr address, bool reuse, bool* begun);
  void cancel_launch(CUdeviceptr address) noexcept;
  // The same for a launch that frees, after those that it allocates itself.
  Answer begin_graph_free(CUdeviceptr address);
  void cancel_graph_free(CUdeviceptr address) noexcept;
  // The nodes run.
  void run_allocation_node(CUdeviceptr address) noexcept;
  void run_free_node(CUdeviceptr address) noexcept;
  // The last graph with the allocation node is gone: the addresses go too, be it with the free that is still due.
  void forget_promise(CUdeviceptr address) noexcept;

  // The allocation that contains the address, or null.
  [[nodiscard]] const PoolAllocation* find(CUdeviceptr address) const;
  // Whether the range lies in memory of a graph that is not live now.
  [[nodiscard]] bool promised(CUdeviceptr address, std::uint64_t bytes) const;
  // Appends the memory behind the range, all of which must lie in one live allocation that `who` may touch.
  Answer resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                 std::vector<Segment>& segments) const;

  // What synchronizing does: pools that hold more than they are told to give unused memory back.
  void release_above_thresholds() noexcept;

  [[nodiscard]] std::size_t live_allocations() const { return allocations_.size(); }

 private:
  using Allocations = std::map<CUdeviceptr, PoolAllocation>;

  [[nodiscard]] std::uint64_t alignment_for(const PoolAllocation& allocation) const;
  [[nodiscard]] static std::uint64_t taken_by(const PoolAllocation& allocation);
  // Which freed extents an allocation may take over: those of its own stream, of about its size, or any.
  enum class TakeOver { own_stream, any_stream };
  [[nodiscard]] bool take_over(PoolAllocation& allocation, std::uint64_t bytes, StreamId stream, TakeOver which,
                               Signal* wait_for);
  Answer find_bytes(PoolAllocation& allocation, StreamId stream, Signal* wait_for);
  Answer add(PoolAllocation allocation, CUdeviceptr* address);
  void give_up(const std::shared_ptr<MemoryPool>& pool, const PoolExtent& extent) noexcept;
  [[nodiscard]] Answer out_of_memory(const MemoryPool& pool, std::uint64_t bytes) const;
  void release_bytes(PoolAllocation& allocation) noexcept;
  void erase(Allocations::iterator found) noexcept;
  void forget_if_unused(const std::shared_ptr<MemoryPool>& pool) noexcept;

  std::uint64_t granularity_;
  PhysicalStore& store_;
  AddressSpace& addresses_;
  HostView host_view_;
  std::vector<std::shared_ptr<MemoryPool>> pools_;
  Allocations allocations_;
  CUdeviceptr next_address_ = 0;  // addresses just freed are not given out again at once
  std::uint64_t next_id_ = 1;
  std::size_t freeing_ = 0;  // allocations whose free has not run
};

}  // namespace cuvmm::emulator::model
