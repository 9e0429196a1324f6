#include "emulator/api/machine.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

namespace cuvmm::emulator::api {

Machine::Machine(const Configuration& configuration)
    : configuration_(configuration),
      addresses_(configuration.address_base, configuration.address_bytes),
      store_(model::Ledger(configuration.devices,
                           configuration.memory_per_device() - configuration.profile.device_memory_reserved,
                           configuration.profile.host_memory),
             [this](const model::Allocation& allocation) { bytes_die(allocation); }),
      heap_(configuration.profile.granularity, store_, addresses_),
      stream_ordered_memory_(
          configuration.profile.granularity, store_, addresses_,
          [this](const model::PoolAllocation& allocation, bool visible) { return view_of_pool(allocation, visible); }),
      virtual_memory_(configuration_, store_, addresses_, *this, [this](Rule rule, const std::string& detail) {
        if (!warned_.contains(rule)) throw WarningDue{rule, detail};
      }) {
  arenas_.resize(static_cast<std::size_t>(configuration.devices) + 1);
}

Machine::~Machine() {
  for (const auto& [address, range] : host_ranges_)
    if (range.allocated) std::free(reinterpret_cast<void*>(range.begin));
}

void Machine::give_warning(Rule rule, const std::string& detail) {
  const std::lock_guard one_at_a_time(receiving_);
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(rule).second) return;
  }
  const model::RuleText& text = model::text(rule);
  const std::string line =
      fmt::format("cuvmm emulated driver: warning {}: {} ({}). {}.", text.id, text.says, detail, text.way_out);
  if (configuration_.on_warning)
    configuration_.on_warning(line);
  else
    std::fprintf(stderr, "%s\n", line.c_str());
}

memory::Arena& Machine::arena(const model::Place& place) {
  auto& arena = arenas_[place.is_host() ? arenas_.size() - 1 : static_cast<std::size_t>(place.device)];
  if (arena == nullptr && place.is_host()) {
    // Apart from each other, for the sake of host views.
    arena = std::make_unique<memory::Arena>("cuvmm-host", configuration_.profile.granularity);
  } else if (arena == nullptr) {
    arena = std::make_unique<memory::Arena>(fmt::format("cuvmm-device-{}", place.device).c_str());
  }
  return *arena;
}

Answer Machine::tolerated(Rule rule, std::string detail) {
  if (configuration_.mode == Mode::strict) return {CUDA_ERROR_INVALID_VALUE, rule, std::move(detail)};
  give_warning(rule, detail);
  return {};
}

// Bytes are given to an allocation when they are first needed, so that creating memory asks nothing of the system.
std::uint64_t Machine::bytes_of(const model::Allocation& allocation) {
  auto known = offsets_.find(allocation.id);
  if (known != offsets_.end()) return known->second;
  const auto entry = offsets_.emplace(allocation.id, 0).first;
  try {
    return entry->second = arena(allocation.place).take(allocation.bytes);
  } catch (...) {
    offsets_.erase(entry);
    throw;
  }
}

void Machine::bytes_die(const model::Allocation& allocation) noexcept {
  auto known = offsets_.find(allocation.id);
  exported_.erase(allocation.id);
  if (known == offsets_.end()) return;
  arena(allocation.place).give_back(known->second, allocation.bytes);
  offsets_.erase(known);
}

memory::Piece Machine::piece(const model::Segment& segment) {
  return {&arena(segment.allocation->place), bytes_of(*segment.allocation) + segment.offset, nullptr, segment.bytes};
}

Answer Machine::host_rights_change(const model::Mapping& mapping, CUmemAccess_flags now) noexcept try {
  if (now == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    host_views_.remove(mapping.address);
    return {};
  }
  if (host_views_.set(mapping.address, piece({mapping.handle->allocation, 0, mapping.bytes}), now)) return {};
  return {
      CUDA_ERROR_OPERATING_SYSTEM, Rule::operating_system,
      fmt::format("mapping {} bytes at {:#x} for the host: {}", mapping.bytes, mapping.address, std::strerror(errno))};
} catch (const std::system_error& error) {
  return {CUDA_ERROR_OPERATING_SYSTEM, Rule::operating_system, error.code().message()};
} catch (const memory::FileLimitReached& error) {
  return {CUDA_ERROR_OUT_OF_MEMORY, Rule::operating_system, error.what()};
} catch (const std::exception&) {
  return {CUDA_ERROR_OUT_OF_MEMORY, Rule::create_capacity, {}};
}

void Machine::mapping_goes(const model::Mapping& mapping) noexcept {
  tokens_taken_.erase(mapping.address);
  if (mapping.handle->allocation->place.is_host()) host_views_.remove(mapping.address);
}

Answer Machine::access(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, AddressKind kind,
                       Access& found) {
  const std::lock_guard lock(mutex_);
  return find(address, bytes, who, write, kind, found);
}

Answer Machine::find(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, AddressKind kind,
                     Access& found) {
  if (address + bytes < address)
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
            fmt::format("{:#x} + {} is beyond all addresses", address, bytes)};
  if (!addresses_.contains(address)) return find_host(address, bytes, kind, found);
  std::vector<model::Segment> segments;
  const model::HeapAllocation* allocation = heap_.find(address);
  if (allocation != nullptr) {
    // Copies reach every device's memory; kernels need peer access.
    const bool reachable = kind != AddressKind::kernel || who.is_host() || allocation->device == who.ordinal() ||
                           peers_enabled_.contains({who.ordinal(), allocation->device});
    if (!reachable)
      return {CUDA_ERROR_INVALID_VALUE, Rule::access_peer,
              fmt::format("device {} has no peer access to memory of device {}", who.ordinal(), allocation->device)};
    if (Answer answer = heap_.resolve(address, bytes, segments); !answer.ok()) return answer;
  } else if (stream_ordered_memory_.find(address) != nullptr) {
    if (Answer answer = stream_ordered_memory_.resolve(address, bytes, who, write, segments); !answer.ok())
      return answer;
  } else if (Answer answer = virtual_memory_.resolve(address, bytes, who, write, segments); !answer.ok()) {
    return answer;
  }
  std::vector<memory::Piece> pieces;
  pieces.reserve(segments.size());
  for (const model::Segment& segment : segments) {
    pieces.push_back(piece(segment));
    pieces.back().arena->prepare(pieces.back().offset, pieces.back().bytes);  // what can fail fails here
  }
  found.pinned_.reserve(segments.size());
  found.machine_ = this;
  found.pieces_ = std::move(pieces);
  for (const model::Segment& segment : segments) {
    store_.add_reference(*segment.allocation);
    found.pinned_.push_back(segment.allocation);
  }
  return {};
}

Answer Machine::find_host(CUdeviceptr address, std::uint64_t bytes, AddressKind kind, Access& found) {
  if (kind != AddressKind::pageable) {
    const HostRange* range = host_range(address);
    if (range == nullptr || bytes > range->bytes - (address - range->address))
      return {CUDA_ERROR_INVALID_VALUE, Rule::access_needed,
              fmt::format("{:#x} + {} is neither device memory nor page-locked host memory", address, bytes)};
  } else if (address == 0) {
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "a null pointer"};
  } else if (auto after = host_ranges_.lower_bound(address + bytes); after != host_ranges_.begin()) {
    const HostRange& range = std::prev(after)->second;
    const bool overlaps = range.address + range.bytes > address;
    if (overlaps && (address < range.address || bytes > range.bytes - (address - range.address)))
      return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration,
              fmt::format("{:#x} + {} is page-locked in part only", address, bytes)};
  }
  found.pieces_.push_back({nullptr, 0, reinterpret_cast<std::byte*>(address), bytes});
  return {};
}

bool Machine::still_valid(CUdeviceptr address, std::uint64_t bytes, model::Accessor who, bool write, AddressKind kind,
                          const Access& access) {
  Access now;
  return this->access(address, bytes, who, write, kind, now).ok() && now.pieces() == access.pieces();
}

void Machine::set_peer_enabled(int device, int peer, bool enabled) {
  const std::lock_guard lock(mutex_);
  if (enabled)
    peers_enabled_.insert({device, peer});
  else if (auto enabled_once = peers_enabled_.find({device, peer}); enabled_once != peers_enabled_.end())
    peers_enabled_.erase(enabled_once);
}

void Machine::unpin(const std::vector<model::Allocation*>& pinned) noexcept {
  const std::lock_guard lock(mutex_);
  for (model::Allocation* allocation : pinned) store_.drop_reference(*allocation);
}

Answer Machine::allocate(CUdeviceptr* address, std::uint64_t bytes, int device, std::uint64_t owner) {
  if (address == nullptr || bytes == 0) {
    if (address != nullptr) *address = 0;
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "dptr must not be null and bytesize not 0"};
  }
  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
  return heap_.allocate(address, bytes, device, owner);
}

Answer Machine::free(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  Answer answer = heap_.free(address);
  if (answer.ok()) tokens_taken_.erase(address);
  return answer;
}

std::optional<model::HeapAllocation> Machine::find_heap_allocation(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const model::HeapAllocation* found = heap_.find(address);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void Machine::memory_info(int device, std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
  const model::Place place = model::Place::on_device(device);
  if (free != nullptr) *free = store_.ledger().free(place);
  if (total != nullptr) *total = configuration_.memory_per_device();
}

void Machine::release_all_of(std::uint64_t owner) {
  const std::lock_guard lock(mutex_);
  heap_.free_all_of(owner);
  std::erase_if(tokens_taken_, [&](CUdeviceptr address) {
    return heap_.find(address) == nullptr && virtual_memory_.find_mapping(address) == nullptr;
  });
  for (auto range = host_ranges_.begin(); range != host_ranges_.end();) {
    auto next = std::next(range);
    if (range->second.owner == owner) {
      if (range->second.allocated) std::free(reinterpret_cast<void*>(range->second.begin));
      host_ranges_.erase(range);
    }
    range = next;
  }
}

Machine::LiveObjects Machine::live_objects() {
  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
  return {virtual_memory_.live_handles(),
          virtual_memory_.live_mappings(),
          virtual_memory_.live_reservations(),
          store_.live_allocations(),
          heap_.live_allocations(),
          exports_.size(),
          host_ranges_.size(),
          stream_ordered_memory_.live_allocations()};
}

Access::Access(Access&& other) noexcept
    : machine_(std::exchange(other.machine_, nullptr)),
      pieces_(std::move(other.pieces_)),
      pinned_(std::move(other.pinned_)) {
  other.pinned_.clear();
}

Access& Access::operator=(Access&& other) noexcept {
  std::swap(machine_, other.machine_);
  std::swap(pieces_, other.pieces_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Access::~Access() {
  if (!pinned_.empty()) machine_->unpin(pinned_);
}

}  // namespace cuvmm::emulator::api
