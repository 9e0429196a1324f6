#include "emulator/memory/private_memory.hpp"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace cuvmm::emulator::memory {
namespace {

using namespace cuvmm::abi;

// What a fabric handle holds; the rest of its 64 bytes is zero.
struct FabricContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'f', 'b', '1'};
  std::uint64_t allocation = 0;
};

// What a legacy IPC handle holds.
struct IpcContent {
  std::uint64_t mark = 0;
  ::pid_t process = 0;
};

std::uint64_t next_machine() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

constexpr std::uint64_t ipc_mark = 0x4350'494d'4d56'5543;  // "CUVMMIPC"

}  // namespace

PrivateMemory::PrivateMemory(const Configuration& configuration)
    : granularity_(configuration.profile.granularity),
      descriptor_limit_(configuration.descriptor_limit),
      imex_channel_(configuration.imex_channel_count() > 0),
      process_(::getpid()),
      number_(next_machine()),
      ledger_(configuration.devices, configuration.memory_per_device() - configuration.profile.device_memory_reserved,
              configuration.profile.host_memory),
      arenas_(static_cast<std::size_t>(configuration.devices) + 1),
      teams_(configuration.multicast_slot_count()),
      devices_(configuration.devices) {}

std::string PrivateMemory::machine_identity() const {
  return fmt::format("private {}-{}", process_, number_);
}

std::optional<std::uint64_t> PrivateMemory::take(model::Place place, std::uint64_t bytes, const CUmemAllocationProp&) {
  if (!ledger_.take(place, bytes)) return std::nullopt;
  return next_id_++;
}

void PrivateMemory::give_back(const model::Allocation& allocation) noexcept {
  if (allocation.is_multicast()) {
    end_multicast(allocation);
    return;
  }
  ledger_.give_back(allocation.place, allocation.bytes);
  exported_.erase(allocation.id);
  const auto known = offsets_.find(allocation.id);
  if (known == offsets_.end()) return;
  arena(allocation.place).give_back(known->second, allocation.bytes);
  offsets_.erase(known);
}

Arena& PrivateMemory::arena(const model::Place& place) {
  auto& arena = arenas_[place.is_host() ? arenas_.size() - 1 : static_cast<std::size_t>(place.device)];
  if (arena == nullptr && place.is_host()) {
    // Apart from each other, for the sake of host views.
    arena = std::make_unique<Arena>("cuvmm-host", granularity_);
  } else if (arena == nullptr) {
    arena = std::make_unique<Arena>(fmt::format("cuvmm-device-{}", place.device).c_str());
  }
  return *arena;
}

// Bytes are given to an allocation when they are first needed, so that creating memory asks nothing of the system.
Extent PrivateMemory::extent(const model::Allocation& allocation) {
  Arena& bytes = arena(allocation.place);
  const auto known = offsets_.find(allocation.id);
  if (known != offsets_.end()) return {&bytes, known->second};
  const auto entry = offsets_.emplace(allocation.id, 0).first;
  try {
    entry->second = bytes.take(allocation.bytes);
  } catch (...) {
    offsets_.erase(entry);
    throw;
  }
  return {&bytes, entry->second};
}

void PrivateMemory::collect_closed_exports() {
  if (exports_.size() == 0) return;
  for (const std::uint64_t id : exports_.take_closed()) store().drop_reference(*exported_.at(id));
}

Answer PrivateMemory::no_descriptor_left(bool full) const {
  return {CUDA_ERROR_OPERATING_SYSTEM, Rule::descriptor_limit,
          full ? fmt::format("{} exported descriptors are open, and descriptor-limit allows no more", exports_.size())
               : std::strerror(errno)};
}

Answer PrivateMemory::export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                                        ExportRegistry::Use use) {
  const bool full = use == ExportRegistry::Use::import && descriptor_limit_ && exports_.size() >= *descriptor_limit_;
  std::vector<std::uint64_t> ids;
  ids.reserve(memory.size());
  for (model::Allocation* allocation : memory) {
    exported_[allocation->id] = allocation;
    ids.push_back(allocation->id);
  }
  const auto made = full ? std::nullopt : exports_.add(std::move(ids), use);
  if (!made) return no_descriptor_left(full);
  for (model::Allocation* allocation : memory) store().add_reference(*allocation);
  *descriptor = *made;
  return {};
}

model::Allocation* PrivateMemory::exported(std::optional<std::uint64_t> id) {
  const auto found = id ? exported_.find(*id) : exported_.end();
  if (found == exported_.end()) return nullptr;
  store().add_reference(*found->second);
  return found->second;
}

Answer PrivateMemory::import_descriptor(model::Allocation** memory, int descriptor) {
  *memory = exported(exports_.find(descriptor));
  if (*memory != nullptr) return {};
  if (exports_.find_pool(descriptor) != nullptr)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::import_descriptor, "the descriptor is a memory pool's"};
  return {CUDA_ERROR_UNKNOWN, Rule::import_descriptor, "the descriptor is not open here, or is no export"};
}

Answer PrivateMemory::export_fabric(CUmemFabricHandle* handle, model::Allocation& memory) {
  exported_[memory.id] = &memory;
  if (memory.is_multicast()) fabric_multicasts_.emplace(memory.id, memory);
  FabricContent content;
  content.allocation = memory.id;
  *handle = {};
  std::memcpy(handle, &content, sizeof content);
  return {};
}

std::optional<std::uint64_t> PrivateMemory::fabric_content(const CUmemFabricHandle& handle) {
  FabricContent content, expected;
  std::memcpy(static_cast<void*>(&content), &handle, sizeof content);
  const bool ours = std::memcmp(content.magic, expected.magic, sizeof content.magic) == 0;
  return ours ? std::optional(content.allocation) : std::nullopt;
}

Answer PrivateMemory::import_fabric(model::Allocation** memory, const CUmemFabricHandle& handle, bool anew) {
  const auto id = fabric_content(handle);
  if (id && fabric_multicasts_.contains(*id) && !teams_.contains(*id)) {
    if (!anew) return lost_multicast();
    const model::Allocation& lost = fabric_multicasts_.at(*id);
    *memory = &store().create_multicast(lost.multicast_devices, lost.bytes, lost.properties);
    return {};
  }
  *memory = exported(id);
  if (*memory != nullptr) return {};
  return {CUDA_ERROR_INVALID_VALUE, Rule::import_descriptor, "no memory was exported as this handle, or it is gone"};
}

Answer PrivateMemory::export_ipc(CUipcMemHandle* handle, const IpcRange&) {
  const IpcContent content{ipc_mark, ::getpid()};
  *handle = {};
  std::memcpy(handle->reserved, &content, sizeof content);
  return {};
}

Answer PrivateMemory::import_ipc(IpcRange*, const CUipcMemHandle& handle) {
  IpcContent content;
  std::memcpy(static_cast<void*>(&content), handle.reserved, sizeof content);
  if (content.mark != ipc_mark)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "the handle does not come from cuIpcGetMemHandle"};
  if (content.process == ::getpid())
    return {CUDA_ERROR_INVALID_CONTEXT, Rule::ipc_other_process, "the handle comes from this process"};
  return {CUDA_ERROR_NOT_SUPPORTED, Rule::ipc_private_machine, "this process has an emulated machine of its own"};
}

}  // namespace cuvmm::emulator::memory
