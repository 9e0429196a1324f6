// The physical memory of a machine that is the process's own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/configuration.hpp"
#include "emulator/memory/arena.hpp"
#include "emulator/memory/physical_memory.hpp"

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
  [[nodiscard]] std::string machine_identity() const override;

  Extent extent(const model::Allocation& allocation) override;
  Answer export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                           ExportRegistry::Use use) override;
  Answer import_descriptor(model::Allocation** memory, int descriptor) override;
  Answer export_fabric(abi::CUmemFabricHandle* handle, model::Allocation& memory) override;
  Answer import_fabric(model::Allocation** memory, const abi::CUmemFabricHandle& handle) override;
  Answer export_ipc(abi::CUipcMemHandle* handle, const IpcRange& range) override;
  Answer import_ipc(IpcRange* range, const abi::CUipcMemHandle& handle) override;
  void collect_closed_exports() override;
  std::size_t live_exports() override { return exports_.size(); }

 private:
  [[nodiscard]] Arena& arena(const model::Place& place);
  [[nodiscard]] model::Allocation* exported(std::optional<std::uint64_t> id);

  const std::uint64_t granularity_;
  const std::optional<std::size_t> descriptor_limit_;
  const bool imex_channel_;
  const ::pid_t process_;
  const std::uint64_t number_;  // of the process's machines
  model::Ledger ledger_;
  std::uint64_t next_id_ = 1;
  std::vector<std::unique_ptr<Arena>> arenas_;      // one a device, the host's last
  std::map<std::uint64_t, std::uint64_t> offsets_;  // allocation -> offset in its arena, once it has bytes
  ExportRegistry exports_;
  std::map<std::uint64_t, model::Allocation*> exported_;  // allocations that were exported, by identity
};

}  // namespace cuvmm::emulator::memory
