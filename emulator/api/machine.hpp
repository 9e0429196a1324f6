// One emulated machine: the model's state and the bytes behind it, under one lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/configuration.hpp"
#include "emulator/memory/bytes.hpp"
#include "emulator/memory/host_views.hpp"
#include "emulator/memory/physical_memory.hpp"
#include "emulator/model/device_heap.hpp"
#include "emulator/model/stream_ordered_memory.hpp"
#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::api {

using namespace cuvmm::abi;

class AliasTracker;
class Machine;

// Page-locked memory of the process: allocated by cuMemHostAlloc, or registered.
struct HostRange {
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
  unsigned flags = 0;
  bool allocated = false;
  std::uint64_t owner = 0;   // context
  int device = 0;            // the owner's
  std::uintptr_t begin = 0;  // of the memory that was taken from the process, if it is allocated
  bool managed = false;
};

// The bytes behind an address range that somebody was found to be allowed to touch; the memory cannot die before this
// does, even if it is unmapped and released.
class Access {
 public:
  Access() = default;
  Access(Access&& other) noexcept;
  Access& operator=(Access&& other) noexcept;
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  ~Access();

  [[nodiscard]] const std::vector<memory::Piece>& pieces() const noexcept { return pieces_; }
  // Of multicast addresses: those of each device of the team.
  [[nodiscard]] const std::vector<std::vector<memory::Piece>>& replicas() const noexcept { return replicas_; }

 private:
  friend class Machine;
  Machine* machine_ = nullptr;
  std::vector<memory::Piece> pieces_;
  std::vector<std::vector<memory::Piece>> replicas_;
  std::vector<model::Allocation*> pinned_;
};

// A free in the order of a stream that was asked for and has not run.
struct PendingFree {
  CUdeviceptr address = 0;
  std::uint64_t token = 0;
};

struct AddressRange {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
};

// What the machine knows of a pointer.
struct PointerFacts {
  enum class Kind { heap, device_mapping, host_mapping, host, managed, device_pool, host_pool, managed_pool };
  Kind kind = Kind::heap;
  int device = 0;
  std::uint64_t context = 0;                                 // of the memory that belongs to one
  AddressRange range;                                        // the reservation, or the allocation
  AddressRange mapping;                                      // the mapping, or the allocation
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // of memory that is not VMM's
  model::Rights rights;                                      // of VMM's
  int handle_types = 0;
  bool rdma = false;
  bool legacy_ipc = false;    // a legacy IPC handle can be made of it
  bool rounded = false;       // the mapping is larger than the allocation, up to the granularity
  bool tokens_taken = false;  // peer-to-peer tokens were asked for
  std::uint64_t buffer_id = 0;
  std::uintptr_t pool = 0;  // the handle of the pool that it is from
  bool imported_host_pool = false;

  [[nodiscard]] bool is_mapping() const { return kind == Kind::device_mapping || kind == Kind::host_mapping; }
  [[nodiscard]] bool is_pooled() const {
    return kind == Kind::device_pool || kind == Kind::host_pool || kind == Kind::managed_pool;
  }
  [[nodiscard]] bool is_managed() const { return kind == Kind::managed || kind == Kind::managed_pool; }
  [[nodiscard]] bool on_host() const {
    return kind == Kind::host || kind == Kind::host_mapping || kind == Kind::host_pool;
  }
  [[nodiscard]] CUmemAccess_flags rights_of(int ordinal) const {
    return is_mapping() || is_pooled() ? rights.get(model::Accessor::device(ordinal)) : access;
  }
  [[nodiscard]] bool open_to(int ordinal) const { return rights_of(ordinal) != CU_MEM_ACCESS_FLAGS_PROT_NONE; }
};

// How strictly a copy's or a kernel's addresses are taken.
enum class AddressKind {
  kernel,    // device addresses and page-locked host memory; cuMemAlloc memory of another device with peer access alone
  copy,      // the same, but every device's cuMemAlloc memory
  pageable,  // any memory of the process as well
};

// What a machine is made from.
struct MachineParts {
  Configuration configuration;
  std::unique_ptr<memory::PhysicalMemory> physical_memory;

  // The configured machine's: its own, or that which processes share, as which the configuration then is where it
  // leaves that open. Throws as sharing::join_machine does.
  static MachineParts of(const Configuration& configuration);
};

// Thread-safe: every public function takes the machine's lock where it needs it; none calls out while holding it.
class Machine final : private model::HostViewListener {
 public:
  explicit Machine(MachineParts parts);
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] const Configuration& configuration() const noexcept { return configuration_; }
  // Tells it apart from all other machines; the same in all processes that share it.
  [[nodiscard]] std::string identity() const { return physical_->machine_identity(); }

  // Runs `work(VirtualMemory&)` under the lock. Where the model is to warn of something for the first time, the work is
  // given up, which has changed nothing yet, and is run again once the receiver was told without the lock.
  template <class Work>
  auto with_memory(Work&& work) {
    while (true) {
      try {
        const std::lock_guard lock(mutex_);
        return work(virtual_memory_);
      } catch (const WarningDue& due) {
        give_warning(due.rule, due.detail);
      }
    }
  }

  // Runs `work(StreamOrderedMemory&)` under the lock.
  template <class Work>
  auto with_pools(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work(stream_ordered_memory_);
  }

  // cuMemFreeAsync of memory of pools: from begin_free on nobody else may ask for it.
  Answer begin_free(CUdeviceptr address, model::StreamId stream, PendingFree& free);
  void cancel_free(const PendingFree& free) noexcept;
  void finish_free(const PendingFree& free) noexcept;
  // Whether it lies in an allocation of a pool.
  [[nodiscard]] bool is_pooled(CUdeviceptr address);

  // What the real driver lets pass although the rule forbids it: refused in strict mode, else a warning.
  Answer tolerated(Rule rule, std::string detail);

  // Finds the bytes of [address, address + bytes) for reading or writing by a device's work.
  Answer access(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, AddressKind kind,
                Access& found);

  // Whether the range is still mapped to these very bytes with these rights: false if it was unmapped or revoked since.
  [[nodiscard]] bool still_valid(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write,
                                 AddressKind kind, const Access& access);

  // Direct access of `device` to cuMemAlloc memory of `peer`, as kernels have it after cuCtxEnablePeerAccess. It is
  // there until it was disabled as often as it was enabled.
  void set_peer_enabled(int device, int peer, bool enabled);
  // Whether it is cuMemAlloc memory of another device to which the device has no direct access.
  [[nodiscard]] bool needs_peer_access(const PointerFacts& facts, int device);

  Answer allocate(CUdeviceptr* address, std::uint64_t bytes, int device, std::uint64_t owner);
  Answer free(CUdeviceptr address);
  [[nodiscard]] std::optional<model::HeapAllocation> find_heap_allocation(CUdeviceptr address);

  Answer allocate_host(void** pointer, std::uint64_t bytes, unsigned flags, int device, std::uint64_t owner);
  // Memory of the process that the device may touch, too.
  Answer allocate_managed(CUdeviceptr* pointer, std::uint64_t bytes, int device, std::uint64_t owner);
  // The managed memory that begins there.
  [[nodiscard]] std::optional<HostRange> find_managed(CUdeviceptr address);
  Answer free_host(void* pointer);
  Answer register_host(void* pointer, std::uint64_t bytes, unsigned flags, int device, std::uint64_t owner);
  Answer unregister_host(void* pointer);
  [[nodiscard]] std::optional<HostRange> find_host_range(std::uintptr_t address);
  // The context's page-locked memory with the lowest address above `after`.
  [[nodiscard]] std::optional<HostRange> next_host_range_of(std::uint64_t owner, std::uintptr_t after);
  // What cuMemHostGetFlags answers: of page-locked memory, and of mappings that the device may touch.
  [[nodiscard]] std::optional<unsigned> host_flags(std::uintptr_t address, int device);

  // Everything that belongs to a context, which is going away.
  void release_all_of(std::uint64_t owner);

  Answer export_handle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags);
  Answer import_handle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType type);

  // What waits for the devices of a multicast object does so without the lock, as long as the configuration says.
  Answer map(CUdeviceptr address, std::uint64_t bytes, std::uint64_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags);
  Answer bind_multicast(const model::MulticastBind& wanted);
  // Finds the bytes behind multicast addresses, all of which are bound on every device of the team.
  Answer access_multicast(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, Access& found);
  [[nodiscard]] bool still_bound(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write,
                                 const Access& access);

  // Legacy IPC of cuMemAlloc memory. What was opened belongs to `owner`; it is the same address if that has it open.
  Answer export_ipc(CUipcMemHandle* handle, CUdeviceptr address);
  Answer open_ipc(CUdeviceptr* address, const CUipcMemHandle& handle, int device, std::uint64_t owner);
  Answer close_ipc(CUdeviceptr address);

  // Pools that pass between processes, and their allocations. What was imported is dropped when the pool that has its
  // id ends, or by drop_pool.
  Answer export_pool(int* descriptor, model::MemoryPool& pool);
  [[nodiscard]] bool has_imex_channel();
  Answer import_pool(memory::SharedPool* pool, int descriptor);
  void drop_pool(std::uint64_t shared_id) noexcept;
  Answer export_pool_pointer(CUmemPoolPtrExportData* data, CUdeviceptr address);
  Answer import_pool_pointer(CUdeviceptr* address, const std::shared_ptr<model::MemoryPool>& pool,
                             const CUmemPoolPtrExportData& data);

  Answer dma_buf(void* handle, CUdeviceptr address, std::uint64_t bytes, CUmemRangeHandleType type,
                 unsigned long long flags);
  // Takes back the memory of exports whose descriptors have all been closed.
  void collect_closed_exports();

  [[nodiscard]] std::optional<PointerFacts> pointer_facts(CUdeviceptr pointer);
  // The allocation, or the mapping open to the device, that contains the pointer.
  [[nodiscard]] std::optional<AddressRange> address_range(CUdeviceptr pointer, int device);
  // Asking for peer-to-peer tokens of device memory makes SYNC_MEMOPS true for it.
  void note_tokens_taken(const PointerFacts& facts);

  // Free and total bytes of a device.
  void memory_info(int device, std::size_t* free, std::size_t* total);

  [[nodiscard]] bool is_device_address(CUdeviceptr address) const { return addresses_.contains(address); }

  [[nodiscard]] AliasTracker& aliases() noexcept { return *aliases_; }

  // What is alive, for tests and for reports of leaks.
  struct LiveObjects {
    std::size_t handles = 0, mappings = 0, reservations = 0, allocations = 0, heap_allocations = 0, exports = 0,
                host_ranges = 0, pool_allocations = 0;
    friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
  };
  [[nodiscard]] LiveObjects live_objects();

 private:
  friend class Access;

  Answer host_rights_change(const model::Mapping& mapping, CUmemAccess_flags now) noexcept override;
  void mapping_goes(const model::Mapping& mapping) noexcept override;

  // Thrown out of the model's work, which has the lock.
  struct WarningDue {
    Rule rule{};
    std::string detail;
  };

  Answer import_fabric(model::Allocation** memory, const CUmemFabricHandle& handle);
  template <class Attempt>
  Answer once_complete(Attempt&& attempt);
  // Tells the receiver unless that was done before; without the lock, since it may call the driver.
  void give_warning(Rule rule, const std::string& detail);
  [[nodiscard]] memory::Piece piece(const model::Segment& segment);
  [[nodiscard]] bool view_of_chunk(const model::PoolChunk& chunk, bool visible) noexcept;
  Answer find(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, AddressKind kind,
              Access& found);
  [[nodiscard]] Answer dma_buf_memory(CUdeviceptr address, std::uint64_t bytes,
                                      std::vector<model::Allocation*>& covered) const;
  Answer find_host(CUdeviceptr address, std::uint64_t bytes, AddressKind kind, Access& found);
  [[nodiscard]] const HostRange* host_range(std::uintptr_t address) const;
  [[nodiscard]] Answer check_host_registration(std::uintptr_t address, std::uint64_t bytes, unsigned flags) const;
  void unpin(const std::vector<model::Allocation*>& pinned) noexcept;

  const Configuration configuration_;
  std::mutex mutex_;
  const std::unique_ptr<memory::PhysicalMemory> physical_;
  model::AddressSpace addresses_;
  model::PhysicalStore& store_;
  memory::HostViews host_views_;
  model::DeviceHeap heap_;
  model::StreamOrderedMemory stream_ordered_memory_;
  model::VirtualMemory virtual_memory_;
  std::map<std::uintptr_t, HostRange> host_ranges_;
  std::set<CUdeviceptr> tokens_taken_;  // beginnings of mappings and allocations
  std::multiset<std::pair<int, int>> peers_enabled_;
  const std::unique_ptr<AliasTracker> aliases_;
  std::set<Rule> warned_;
  std::recursive_mutex receiving_;  // taken before the lock: one thread at a time tells the receiver of warnings
};

}  // namespace cuvmm::emulator::api
