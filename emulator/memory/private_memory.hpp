// The physical memory of a machine that is the process's own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulator/configuration.hpp"
#include "emulator/memory/arena.hpp"
#include "emulator/memory/physical_memory.hpp"
#include "emulator/model/multicast.hpp"

namespace cuvmm::emulator::memory {

// Asks the operating system for nothing until bytes are touched or exported.
class PrivateMemory final : public PhysicalMemory {
 public:
  explicit PrivateMemory(const Configuration& configuration);

  std::optional<std::uint64_t> take(model::Place place, std::uint64_t bytes,
                                    const abi::CUmemAllocationProp& properties) override;
  void give_back(const model::Allocation& allocation) noexcept override;
  std::uint64_t free(model::Place place) override { return ledger_.free(place); }
  [[nodiscard]] std::uint64_t total(model::Place place) const override { return ledger_.total(place); }
  bool has_imex_channel() override { return imex_channel_; }
  std::uint64_t take_multicast(std::uint32_t devices, std::uint64_t bytes,
                               const abi::CUmemAllocationProp& properties) override;
  model::MulticastState multicast_state(const model::Allocation& object) override;
  model::JoinOutcome join_multicast(const model::Allocation& object, int device) override;
  model::BindOutcome bind_multicast(const model::Allocation& object, int device, std::uint64_t offset,
                                    std::uint64_t bytes, model::Allocation& memory,
                                    std::uint64_t memory_offset) override;
  bool unbind_multicast(const model::Allocation& object, int device, std::uint64_t offset, std::uint64_t bytes,
                        std::uint64_t* memory) override;
  bool is_bound(const model::Allocation& memory) override { return teams_.is_bound(memory.id); }
  std::vector<MulticastPiece> multicast_pieces(const model::Allocation& object, std::uint64_t offset,
                                               std::uint64_t bytes) override;
  [[nodiscard]] std::string machine_identity() const override;

  Extent extent(const model::Allocation& allocation) override;
  Answer export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                           ExportRegistry::Use use) override;
  Answer import_descriptor(model::Allocation** memory, int descriptor) override;
  Answer export_fabric(abi::CUmemFabricHandle* handle, model::Allocation& memory) override;
  Answer import_fabric(model::Allocation** memory, const abi::CUmemFabricHandle& handle, bool anew) override;
  Answer export_ipc(abi::CUipcMemHandle* handle, const IpcRange& range) override;
  Answer import_ipc(IpcRange* range, const abi::CUipcMemHandle& handle) override;
  Answer export_pool(int* descriptor, SharedPool* pool) override;
  Answer import_pool(SharedPool* pool, int descriptor) override;
  void drop_pool(std::uint64_t id) noexcept override;
  Answer export_pool_range(abi::CUmemPoolPtrExportData* data, std::uint64_t pool, const PoolRange& range) override;
  Answer import_pool_range(PoolRange* range, std::uint64_t pool, const abi::CUmemPoolPtrExportData& data) override;
  void collect_closed_exports() override;
  std::size_t live_exports() override { return exports_.size(); }

 private:
  struct KeptRange {
    std::vector<model::Allocation*> memory;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    friend auto operator<=>(const KeptRange&, const KeptRange&) = default;
  };
  // A pool that was exported or imported, for as long as it is had or its descriptors are open; it keeps the memory of
  // its ranges.
  struct KnownPool : SharedPool {
    KnownPool(const SharedPool& facts, model::PhysicalStore& of) : SharedPool(facts), store(of) {}
    KnownPool(const KnownPool&) = delete;
    KnownPool& operator=(const KnownPool&) = delete;
    KnownPool(KnownPool&&) = delete;
    KnownPool& operator=(KnownPool&&) = delete;
    ~KnownPool() {
      for (model::Allocation* memory : keeps) store.drop_reference(*memory);
    }
    model::PhysicalStore& store;
    std::map<std::uint64_t, KeptRange> ranges;
    std::map<KeptRange, std::uint64_t> number_of;
    std::set<model::Allocation*> keeps;
  };
  struct HadPool {
    std::shared_ptr<KnownPool> pool;
    std::size_t times = 0;
  };

  [[nodiscard]] Answer no_descriptor_left(bool full) const;
  [[nodiscard]] Arena& arena(const model::Place& place);
  [[nodiscard]] model::Allocation* exported(std::optional<std::uint64_t> id);
  // Which allocation a fabric handle stands for; nothing if it is none of this machine's kind.
  [[nodiscard]] static std::optional<std::uint64_t> fabric_content(const abi::CUmemFabricHandle& handle);
  void end_multicast(const model::Allocation& object) noexcept;
  void let_go(std::uint64_t memory) noexcept;

  const std::uint64_t granularity_;
  const std::optional<std::size_t> descriptor_limit_;
  const bool imex_channel_;
  const ::pid_t process_;
  const std::uint64_t number_;  // of the process's machines
  model::Ledger ledger_;
  std::uint64_t next_id_ = 1;
  std::vector<std::unique_ptr<Arena>> arenas_;            // one a device, the host's last
  std::map<std::uint64_t, std::uint64_t> offsets_;        // allocation -> offset in its arena, once it has bytes
  std::map<std::uint64_t, model::Allocation*> exported_;  // allocations that were exported, by identity
  model::MulticastTeams teams_;
  const int devices_;
  // Multicast objects for which a fabric handle was given out, also when they are gone.
  std::map<std::uint64_t, model::Allocation> fabric_multicasts_;
  ExportRegistry exports_;
  std::map<std::uint64_t, HadPool> pools_;
  std::uint64_t next_pool_ = 1;
  std::uint64_t next_range_ = 1;
};

}  // namespace cuvmm::emulator::memory
