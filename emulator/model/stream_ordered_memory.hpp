// Memory of cuMemAllocAsync, and of graphs that allocate: which allocations there are, and whose bytes they have.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/answer.hpp"
#include "emulator/model/memory_pool.hpp"
#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {

// What an operation of one stream waits for that another stream does.
using Signal = std::shared_ptr<std::atomic<bool>>;

struct PoolAllocation {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;  // as asked for
  std::shared_ptr<MemoryPool> pool;
  PoolExtent extent;     // none while a graph's allocation has no memory; what others have not taken over, once freed
  std::uint64_t id = 0;  // its own for ever
  // A free that was asked for and has not run.
  std::uint64_t free_token = 0;  // 0: there is none
  StreamId freed_in = 0;
  Signal freed;  // set when it has run
  // Of a graph's allocation.
  bool graph = false;
  bool live = true;       // may be touched: between its allocation node and its free alone
  bool owned = false;     // some graph still has the allocation node
  unsigned launches = 0;  // that allocate it and whose free has not run
  unsigned frees = 0;     // asked for, that have not run
};

// An allocation lies where its bytes are in their pool, so that what has a freed allocation's bytes has its address,
// too; until then, a use of it is noticed as soon as its free has run. Memory of graphs has addresses of its own. Not
// thread-safe.
class StreamOrderedMemory {
 public:
  explicit StreamOrderedMemory(PoolSources sources) : sources_(std::move(sources)) {}
  StreamOrderedMemory(const StreamOrderedMemory&) = delete;
  StreamOrderedMemory& operator=(const StreamOrderedMemory&) = delete;
  ~StreamOrderedMemory() = default;

  [[nodiscard]] std::shared_ptr<MemoryPool> create_pool(const PoolKind& kind);
  // The pool that graphs take memory of a place from.
  [[nodiscard]] std::shared_ptr<MemoryPool> create_graph_pool(Place place);
  // The pool takes no new allocations and goes with its last one.
  void destroy_pool(const std::shared_ptr<MemoryPool>& pool) noexcept;

  // `wait_for`: what the stream must wait for before the memory may be used; null if it need not.
  Answer allocate(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool, StreamId stream,
                  Signal* wait_for);
  // Memory of another process's pool, as MemoryPool::take_imported has it, at an address of this process's.
  Answer import(CUdeviceptr* address, const std::shared_ptr<MemoryPool>& pool, const std::vector<Allocation*>& memory,
                std::uint64_t offset, std::uint64_t bytes);
  // What was so imported and is not freed, or null.
  [[nodiscard]] const PoolAllocation* imported_as(const MemoryPool& pool, const std::vector<Allocation*>& memory,
                                                  std::uint64_t offset, std::uint64_t bytes) const;
  // The allocation that begins at the address, unless its free was asked for; or null.
  [[nodiscard]] const PoolAllocation* find_live(CUdeviceptr address) const;
  // Asks for the free: from here on nobody may ask for it again. `token` is what finish_free takes.
  Answer begin_free(CUdeviceptr address, StreamId stream, std::uint64_t* token);
  // Frees it at once, without regard to what uses it.
  Answer free_now(CUdeviceptr address);
  // The free does not come to pass after all.
  void cancel_free(CUdeviceptr address, std::uint64_t token) noexcept;
  // The free runs, once: the addresses are nobody's.
  void finish_free(CUdeviceptr address, std::uint64_t token) noexcept;

  // Events that order streams: one that is recorded in a stream, and one that a stream waits for.
  void note_record(std::uint64_t event, StreamId stream) noexcept;
  void note_wait(StreamId stream, std::uint64_t event) noexcept;

  // Memory of graphs: addresses for as long as a graph has the allocation node, bytes from a launch to the free.
  Answer promise(CUdeviceptr* address, std::uint64_t bytes, const std::shared_ptr<MemoryPool>& pool);
  // A graph is to free it: `id` tells it from what may lie at its address later.
  Answer check_free_node(CUdeviceptr address, std::uint64_t* id) const;
  // A launch that allocates is about to begin. Refused while the memory of the launch before was not freed, unless
  // `reuse`. `begun` says whether cancel_launch takes this back.
  Answer begin_launch(CUdeviceptr address, bool reuse, bool* begun);
  void cancel_launch(CUdeviceptr address) noexcept;
  // The launch has all of its memory.
  void count_launch(CUdeviceptr address) noexcept;
  // The same for a launch that frees, after those that it allocates itself.
  Answer begin_graph_free(CUdeviceptr address, std::uint64_t id);
  void cancel_graph_free(CUdeviceptr address, std::uint64_t id) noexcept;
  // The nodes run.
  void run_allocation_node(CUdeviceptr address) noexcept;
  void run_free_node(CUdeviceptr address, std::uint64_t id) noexcept;
  // The last graph with the allocation node is gone: the addresses go too, be it with the free that is still due.
  void forget_promise(CUdeviceptr address) noexcept;

  // The allocation that contains the address, or null. One whose free has not run is found where no other has its
  // bytes.
  [[nodiscard]] const PoolAllocation* find(CUdeviceptr address) const;
  // Whether the range lies in memory of a graph that is not live now; that is to be when what was submitted has run.
  [[nodiscard]] bool promised(CUdeviceptr address, std::uint64_t bytes) const;
  [[nodiscard]] bool awaited(CUdeviceptr address, std::uint64_t bytes) const;
  // What graphs have of a pool of theirs: all of it, from their first launch until it is trimmed.
  static void count_graph_use(MemoryPool& pool) { pool.used.set(pool.reserved().current()); }
  // Appends the memory behind the range, all of which must lie in one live allocation that `who` may touch.
  Answer resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                 std::vector<Segment>& segments) const;

  // What synchronizing does: pools that hold more than they are told to give unused memory back.
  void release_above_thresholds() noexcept;
  void host_synchronized_with(StreamId stream) noexcept;
  void host_synchronized_with_all() noexcept;
  // All that pools at the place do not use; false if there was nothing.
  bool give_back_unused(Place place) noexcept;

  // All memory that there is at a place.
  [[nodiscard]] std::uint64_t total(Place place) const { return sources_.store.total(place); }
  [[nodiscard]] std::size_t live_allocations() const { return allocations_.size() + passed_on_.size(); }

 private:
  using Allocations = std::map<std::uint64_t, PoolAllocation>;

  // By stream: the frees in it that come before something are those with lower tokens.
  using FreesBefore = std::map<StreamId, std::uint64_t>;

  [[nodiscard]] bool comes_after_free(StreamId stream, const PoolAllocation& freed) const;
  [[nodiscard]] std::uint64_t alignment_for(const PoolAllocation& allocation) const;
  [[nodiscard]] static std::uint64_t taken_by(const PoolAllocation& allocation);
  // Whose freed extents an allocation may take over: those of its own stream, or any.
  enum class TakeOver { own_stream, any_stream };
  [[nodiscard]] bool take_over(PoolAllocation& allocation, std::uint64_t bytes, StreamId stream, TakeOver which,
                               Signal* wait_for);
  Answer find_bytes(PoolAllocation& allocation, StreamId stream, Signal* wait_for);
  [[nodiscard]] std::shared_ptr<MemoryPool> add_pool(const PoolKind& kind, MemoryPool::Addresses addresses);
  [[nodiscard]] Answer out_of_memory(const MemoryPool& pool, std::uint64_t bytes) const;
  void free_ran(Allocations& among, Allocations::iterator found) noexcept;
  [[nodiscard]] const PoolAllocation* containing(CUdeviceptr address, std::uint64_t bytes) const;
  // The graphs' allocation that begins there, or the end: another one may lie where the one of that id was.
  [[nodiscard]] Allocations::iterator find_of_graph(CUdeviceptr address, std::uint64_t id) noexcept;
  void release_graph_bytes(PoolAllocation& allocation) noexcept;
  void erase_of_graph(Allocations::iterator found) noexcept;
  void forget_allocation_of(const std::shared_ptr<MemoryPool>& pool) noexcept;
  void forget_if_unused(const std::shared_ptr<MemoryPool>& pool) noexcept;

  const PoolSources sources_;
  std::vector<std::shared_ptr<MemoryPool>> pools_;
  Allocations allocations_;       // by address
  Allocations passed_on_;         // by token: their free has not run, and others have their bytes, or some of them
  CUdeviceptr next_address_ = 0;  // addresses just freed are not given to graphs again at once
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, FreesBefore> before_events_;  // while some free has not run
  std::map<StreamId, FreesBefore> before_streams_;      // what they come to next
  std::size_t freeing_ = 0;                             // allocations whose free has not run, of those that have bytes
};

}  // namespace cuvmm::emulator::model
