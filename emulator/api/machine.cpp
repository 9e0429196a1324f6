#include "emulator/api/machine.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "emulator/api/alias_tracker.hpp"
#include "emulator/memory/file_limit.hpp"
#include "emulator/memory/private_memory.hpp"
#include "emulator/sharing/join_machine.hpp"

namespace cuvmm::emulator::api {

MachineParts MachineParts::of(const Configuration& configuration) {
  if (configuration.machine.empty()) return {configuration, std::make_unique<memory::PrivateMemory>(configuration)};
  MachineParts parts{configuration, nullptr};
  parts.physical_memory = sharing::join_machine(parts.configuration);
  return parts;
}

Machine::Machine(MachineParts parts)
    : configuration_(std::move(parts.configuration)),
      physical_(std::move(parts.physical_memory)),
      addresses_(configuration_.address_base, configuration_.address_bytes),
      store_(physical_->store()),
      heap_(configuration_.profile.granularity, store_, addresses_),
      stream_ordered_memory_(
          {store_, addresses_, configuration_.profile.granularity,
           [this](const model::PoolChunk& chunk, bool visible) { return view_of_chunk(chunk, visible); },
           [this](std::uint64_t shared_pool) { physical_->drop_pool(shared_pool); }}),
      virtual_memory_(configuration_, store_, addresses_, *this,
                      [this](Rule rule, const std::string& detail) {
                        if (!warned_.contains(rule)) throw WarningDue{rule, detail};
                      }),
      aliases_(std::make_unique<AliasTracker>()) {
  store_.set_reclaim([this](model::Place place) { return stream_ordered_memory_.give_back_unused(place); });
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
  const RuleText& text = emulator::text(rule);
  const std::string line =
      fmt::format("cuvmm emulated driver: warning {}: {} ({}). {}.", text.id, text.says, detail, text.way_out);
  if (configuration_.on_warning)
    configuration_.on_warning(line);
  else
    std::fprintf(stderr, "%s\n", line.c_str());
}

Answer Machine::tolerated(Rule rule, std::string detail) {
  if (configuration_.is_off(text(rule).id)) return {};
  if (configuration_.mode == Mode::strict) return {CUDA_ERROR_INVALID_VALUE, rule, std::move(detail)};
  give_warning(rule, detail);
  return {};
}

memory::Piece Machine::piece(const model::Segment& segment) {
  const memory::Extent extent = physical_->extent(*segment.allocation);
  return {extent.file, extent.offset + segment.offset, nullptr, segment.bytes};
}

Answer Machine::host_rights_change(const model::Mapping& mapping, CUmemAccess_flags now) noexcept try {
  const bool done = now == CU_MEM_ACCESS_FLAGS_PROT_NONE
                        ? host_views_.remove(mapping.address)
                        : host_views_.set(mapping.address, piece({mapping.handle->allocation, 0, mapping.bytes}), now);
  if (done) return {};
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
    pieces.back().file->prepare(pieces.back().offset, pieces.back().bytes);  // what can fail fails here
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
  try {
    Access now;
    return this->access(address, bytes, who, write, kind, now).ok() && now.pieces() == access.pieces();
  } catch (const std::bad_alloc&) {
    return true;  // no memory to look with, and what was done cannot be done again
  }
}

bool Machine::needs_peer_access(const PointerFacts& facts, int device) {
  const std::lock_guard lock(mutex_);
  return facts.kind == PointerFacts::Kind::heap && facts.device != device &&
         !peers_enabled_.contains({device, facts.device});
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
  physical_->collect_closed_exports();
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
  physical_->collect_closed_exports();
  const model::Place place = model::Place::on_device(device);
  if (free != nullptr) *free = store_.free(place);
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
  physical_->collect_closed_exports();
  return {virtual_memory_.live_handles(),
          virtual_memory_.live_mappings(),
          virtual_memory_.live_reservations(),
          store_.live_allocations(),
          heap_.live_allocations(),
          physical_->live_exports(),
          host_ranges_.size(),
          stream_ordered_memory_.live_allocations()};
}

Access::Access(Access&& other) noexcept
    : machine_(std::exchange(other.machine_, nullptr)),
      pieces_(std::move(other.pieces_)),
      replicas_(std::move(other.replicas_)),
      pinned_(std::move(other.pinned_)) {
  other.pinned_.clear();
}

Access& Access::operator=(Access&& other) noexcept {
  std::swap(machine_, other.machine_);
  std::swap(pieces_, other.pieces_);
  std::swap(replicas_, other.replicas_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

Access::~Access() {
  if (!pinned_.empty()) machine_->unpin(pinned_);
}

}  // namespace cuvmm::emulator::api
