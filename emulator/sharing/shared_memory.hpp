// The physical memory of a machine that processes share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/broker/protocol.hpp"
#include "emulator/configuration.hpp"
#include "emulator/memory/physical_memory.hpp"
#include "emulator/sharing/connection.hpp"
#include "emulator/sharing/place_bytes.hpp"

namespace cuvmm::emulator::sharing {

// Asks the broker for what exists, and touches the bytes itself. What concerns handles and mappings stays in the
// process: the broker knows whether it refers to an allocation, not how often.
class SharedMemory final : public memory::PhysicalMemory {
 public:
  // `channels` is the folder of the machine's IMEX channels.
  SharedMemory(const Configuration& configuration, std::unique_ptr<Connection> connection,
               const broker::Welcome& welcome, memory::FileDescriptor channels);

  std::optional<std::uint64_t> take(model::Place place, std::uint64_t bytes,
                                    const abi::CUmemAllocationProp& properties) override;
  void give_back(const model::Allocation& allocation) noexcept override;
  std::uint64_t free(model::Place place) override;
  [[nodiscard]] std::uint64_t total(model::Place place) const override;
  bool has_imex_channel() override;
  std::uint64_t take_multicast(std::uint32_t devices, std::uint64_t bytes,
                               const abi::CUmemAllocationProp& properties) override;
  model::MulticastState multicast_state(const model::Allocation& object) override;
  model::JoinOutcome join_multicast(const model::Allocation& object, int device) override;
  model::BindOutcome bind_multicast(const model::Allocation& object, int device, std::uint64_t offset,
                                    std::uint64_t bytes, model::Allocation& memory,
                                    std::uint64_t memory_offset) override;
  bool unbind_multicast(const model::Allocation& object, int device, std::uint64_t offset, std::uint64_t bytes,
                        std::uint64_t* memory) override;
  bool is_bound(const model::Allocation& memory) override;
  std::vector<memory::MulticastPiece> multicast_pieces(const model::Allocation& object, std::uint64_t offset,
                                                       std::uint64_t bytes) override;
  [[nodiscard]] std::string machine_identity() const override;

  memory::Extent extent(const model::Allocation& allocation) override;
  Answer export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                           memory::ExportRegistry::Use use) override;
  Answer import_descriptor(model::Allocation** memory, int descriptor) override;
  Answer export_fabric(abi::CUmemFabricHandle* handle, model::Allocation& memory) override;
  Answer import_fabric(model::Allocation** memory, const abi::CUmemFabricHandle& handle, bool anew) override;
  Answer export_ipc(abi::CUipcMemHandle* handle, const memory::IpcRange& range) override;
  Answer import_ipc(memory::IpcRange* range, const abi::CUipcMemHandle& handle) override;
  Answer export_pool(int* descriptor, memory::SharedPool* pool) override;
  Answer import_pool(memory::SharedPool* pool, int descriptor) override;
  void drop_pool(std::uint64_t id) noexcept override;
  Answer export_pool_range(abi::CUmemPoolPtrExportData* data, std::uint64_t pool,
                           const memory::PoolRange& range) override;
  Answer import_pool_range(memory::PoolRange* range, std::uint64_t pool,
                           const abi::CUmemPoolPtrExportData& data) override;
  void collect_closed_exports() override {}  // the broker notices
  std::size_t live_exports() override;

 private:
  struct Where {
    broker::NodePlace place;
    std::uint64_t offset = 0;
  };

  [[nodiscard]] broker::NodePlace here(const model::Place& place) const { return {node_, place}; }
  [[nodiscard]] broker::Usage usage(const model::Place& place);
  using Places = std::map<std::uint64_t, Where>;  // by allocation
  // What the broker gives to this process is noted, which needs no memory then: the note is made before it is asked.
  [[nodiscard]] static Places::node_type make_note();
  void keep(Places::node_type note, const broker::SharedAllocation& given) noexcept;
  [[nodiscard]] Answer too_many_exports(const broker::Reply& refused) const;
  // Tells the broker what this process has given up and could not tell yet.
  void settle();
  [[nodiscard]] model::Allocation& adopt(Places::node_type note, const broker::SharedAllocation& given);
  [[nodiscard]] PlaceBytes& file(const broker::NodePlace& place);
  [[nodiscard]] std::uint64_t token(broker::TokenKind kind, const model::Allocation& memory);

  const int node_;
  const int channel_count_;
  const std::optional<std::size_t> descriptor_limit_;
  const std::unique_ptr<Connection> connection_;
  const std::uint64_t client_;
  const std::uint64_t machine_;
  const std::uint64_t device_bytes_;
  const std::uint64_t host_bytes_;
  const ClosedInChildren channels_;
  std::map<broker::NodePlace, std::unique_ptr<PlaceBytes>> files_;
  Places where_;
  Places given_up_;                             // what the broker is still to be told of
  std::map<std::uint64_t, std::size_t> pools_;  // how often this process has each; 0: the broker is to be told
};

}  // namespace cuvmm::emulator::sharing
