// Address reservations, mappings and access rights.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {
namespace {

// What is left of the rights, or new in them, after all descriptors in their order.
Rights granted(Rights rights, const CUmemAccessDesc* descriptors, std::size_t count) {
  for (std::size_t index = 0; index < count; ++index) {
    const CUmemLocation& location = descriptors[index].location;
    rights.set(location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Accessor::device(location.id) : Accessor::host(),
               descriptors[index].flags);
  }
  return rights;
}

}  // namespace

Answer VirtualMemory::reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                              unsigned long long flags) {
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::vmm_supported, "the device has no virtual memory management"};
  if (address == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "ptr must not be null"};
  if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
  const std::uint64_t granularity = configuration_.profile.granularity;
  if (bytes == 0 || !aligned(bytes))
    return {CUDA_ERROR_INVALID_VALUE, Rule::reserve_size,
            fmt::format("size is {} bytes, granularity {}", bytes, granularity)};
  constexpr std::uint64_t largest_alignment = std::uint64_t{1} << 48;
  if (alignment != 0 && (!std::has_single_bit(alignment) || alignment > largest_alignment))
    return {CUDA_ERROR_INVALID_VALUE, Rule::reserve_alignment, fmt::format("alignment is {}", alignment)};
  if (!aligned(hint) || (alignment != 0 && hint % alignment != 0))
    return {CUDA_ERROR_INVALID_VALUE, Rule::reserve_hint, fmt::format("hint is {:#x}, alignment {}", hint, alignment)};
  constexpr std::uint64_t largest_alignment_found = std::uint64_t{1} << 45;
  constexpr CUdeviceptr addresses_end = CUdeviceptr{1} << 47;
  if (alignment > largest_alignment_found || hint >= addresses_end)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("no such address exists: alignment {}, hint {:#x}", alignment, hint)};

  if (configuration_.profile.behaviour.ignore_address_hints) hint = 0;
  const auto found = addresses_.take(bytes, std::max<std::uint64_t>(alignment, granularity), hint);
  if (!found)
    return {CUDA_ERROR_OUT_OF_MEMORY, Rule::reserve_space,
            fmt::format("{} bytes asked, the largest free piece has {}", bytes, addresses_.largest_free_piece())};
  try {
    reservations_[*found] = Reservation{*found, bytes};
  } catch (...) {
    addresses_.give_back(*found, bytes);
    throw;
  }
  *address = *found;
  return {};
}

Answer VirtualMemory::free(CUdeviceptr address, std::size_t bytes) {
  auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.bytes != bytes)
    return {CUDA_ERROR_INVALID_VALUE, Rule::free_whole_reservation,
            found == reservations_.end()
                ? fmt::format("no reservation begins at {:#x}", address)
                : fmt::format("the reservation at {:#x} has {} bytes, not {}", address, found->second.bytes, bytes)};
  auto mapping = mappings_.upper_bound(address);
  if (mapping != mappings_.begin() && std::prev(mapping)->second.end() > address) --mapping;
  if (mapping != mappings_.end() && mapping->first < address + bytes)
    return {CUDA_ERROR_INVALID_VALUE, Rule::free_unmapped,
            fmt::format("{} bytes are still mapped at {:#x}", mapping->second.bytes, mapping->first)};
  addresses_.give_back(address, bytes);
  reservations_.erase(found);
  return {};
}

const Reservation* VirtualMemory::find_reservation(CUdeviceptr address) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return nullptr;
  const Reservation& candidate = std::prev(after)->second;
  return address - candidate.address < candidate.bytes ? &candidate : nullptr;
}

const Mapping* VirtualMemory::find_mapping(CUdeviceptr address) const {
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  const Mapping& candidate = std::prev(after)->second;
  return address < candidate.end() ? &candidate : nullptr;
}

Answer VirtualMemory::map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                          CUmemGenericAllocationHandle value, unsigned long long flags, bool alone) {
  if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
  const auto not_reserved = [&] {
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::map_in_reservation,
                  fmt::format("{} bytes at {:#x}, where nothing is reserved", bytes, address));
  };
  if (address == 0 || bytes == 0) return not_reserved();
  Handle* handle = find_handle(value);
  if (handle == nullptr) return dead_handle(value);
  if (offset != 0 || bytes != handle->allocation->bytes)  // which the driver finds before it looks at the address
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::map_whole_allocation,
            fmt::format("offset {} size {} of an allocation of {} bytes", offset, bytes, handle->allocation->bytes)};
  const Reservation* reservation = find_reservation(address);
  if (reservation == nullptr) return not_reserved();
  if (!aligned(address))
    return {CUDA_ERROR_INVALID_VALUE, Rule::map_address_aligned,
            fmt::format("address is {:#x}, granularity {}", address, configuration_.profile.granularity)};
  const auto next = mappings_.lower_bound(address);
  const bool overlaps_next = next != mappings_.end() && next->first < address + bytes;
  if (overlaps_next || find_mapping(address) != nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::map_free_addresses,
            fmt::format("part of the {} bytes at {:#x} is mapped already", bytes, address)};
  if (bytes > reservation->bytes - (address - reservation->address)) {
    Answer answer = tolerated(Rule::map_inside_one_reservation,
                              fmt::format("{} bytes at {:#x} end {} bytes past the reservation", bytes, address,
                                          address + bytes - reservation->address - reservation->bytes));
    if (!answer.ok()) return answer;
  }
  if (Answer waits = check_team(value, alone); !waits.ok()) return waits;
  Mapping& mapping = mappings_.emplace_hint(next, address, Mapping{address, bytes, handle, {}, {}})->second;
  bool taken = false;
  try {
    taken = take_unreserved(reservation->end(), mapping.end(), mapping.own_addresses);
  } catch (...) {
    mappings_.erase(address);
    throw;
  }
  if (!taken) {
    mappings_.erase(address);
    return {CUDA_ERROR_INVALID_VALUE, Rule::map_free_addresses,
            fmt::format("part of the {} bytes at {:#x} is memory of cuMemAlloc", bytes, address)};
  }
  ++handle->mappings;
  return {};
}

bool VirtualMemory::take_unreserved(CUdeviceptr begin, CUdeviceptr end, std::vector<Reservation>& taken) {
  end = std::min(end, addresses_.end());
  try {
    for (auto next = reservations_.lower_bound(begin); begin < end; ++next) {
      const bool last = next == reservations_.end() || next->first >= end;
      const CUdeviceptr gap_end = last ? end : next->first;
      if (begin < gap_end) {
        taken.reserve(taken.size() + 1);  // what needs memory comes first
        if (!addresses_.take_at(begin, gap_end - begin)) {
          give_back(taken);
          return false;
        }
        taken.push_back({begin, gap_end - begin});
      }
      if (last) break;
      begin = next->second.end();
    }
  } catch (...) {
    give_back(taken);
    throw;
  }
  return true;
}

void VirtualMemory::give_back(const std::vector<Reservation>& taken) noexcept {
  for (const Reservation& piece : taken) addresses_.give_back(piece.address, piece.bytes);
}

VirtualMemory::Mappings::iterator VirtualMemory::first_hole(Mappings::iterator mapping, CUdeviceptr end) {
  CUdeviceptr next = mapping->first;
  while (mapping != mappings_.end() && mapping->first == next && next < end) next = (mapping++)->second.end();
  return mapping;
}

// No mapping may be cut by the range's beginning or end.
Answer VirtualMemory::check_whole_mappings(CUdeviceptr address, std::uint64_t bytes, Rule rule) const {
  if (address + bytes < address)
    return {CUDA_ERROR_INVALID_VALUE, rule, fmt::format("{:#x} + {} is beyond all addresses", address, bytes)};
  for (const CUdeviceptr edge : {address, address + bytes}) {
    const Mapping* cut = find_mapping(edge);
    if (cut != nullptr && cut->address != edge)
      return {
          CUDA_ERROR_INVALID_VALUE, rule,
          fmt::format("the range {:#x} + {} cuts the mapping {:#x} + {}", address, bytes, cut->address, cut->bytes)};
  }
  return {};
}

Answer VirtualMemory::tolerated(Rule rule, std::string detail) const {
  if (configuration_.is_off(text(rule).id)) return {};
  if (configuration_.mode == Mode::strict) return {CUDA_ERROR_INVALID_VALUE, rule, std::move(detail)};
  warn_(rule, detail);
  return {};
}

Answer VirtualMemory::check_unmap(CUdeviceptr address, std::size_t bytes) const {
  const auto range = [&] { return fmt::format("{} bytes at {:#x}", bytes, address); };
  if (bytes == 0 || find_reservation(address) == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::unmap_in_reservation, range()};
  if (address + bytes < address) return tolerated(Rule::range_fits, range());
  if (Answer answer = check_whole_mappings(address, bytes, Rule::unmap_whole_mappings); !answer.ok()) return answer;
  if (!aligned(bytes) || !aligned(address)) return tolerated(Rule::unmap_aligned, range());
  return {};
}

Answer VirtualMemory::unmap(CUdeviceptr address, std::size_t bytes) {
  if (Answer answer = check_unmap(address, bytes); !answer.ok()) return answer;
  if (address + bytes < address) return {};
  const auto first = mappings_.lower_bound(address);
  const auto last = mappings_.lower_bound(address + bytes);
  if (Answer answer = check_memory_stays(first, last); !answer.ok()) return answer;
  // First what the operating system may refuse.
  const CUmemAccessDesc nothing{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  if (Answer answer = change_host_views(first, last, &nothing, 1); !answer.ok()) return answer;
  for (auto mapping = first; mapping != last;) remove(mapping++);
  return {};
}

void VirtualMemory::remove(Mappings::iterator mapping) noexcept {
  host_view_.mapping_goes(mapping->second);
  Handle& handle = *mapping->second.handle;
  give_back(mapping->second.own_addresses);
  mappings_.erase(mapping);
  --handle.mappings;
  forget_if_unused(handle);
}

Answer VirtualMemory::check_access_descriptor(const CUmemAccessDesc& descriptor, std::size_t index,
                                              Mappings::const_iterator first, Mappings::const_iterator last) const {
  const auto refused = [&](CUresult code, Rule rule, std::string_view why) {
    return Answer(code, rule,
                  fmt::format("descriptor {} (location type {}, id {}, flags {}): {}", index,
                              static_cast<int>(descriptor.location.type), descriptor.location.id,
                              static_cast<int>(descriptor.flags), why));
  };
  if (descriptor.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && descriptor.flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      descriptor.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::access_descriptors, "no such rights");
  switch (descriptor.location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (descriptor.location.id < 0 || descriptor.location.id >= configuration_.devices)
        return refused(CUDA_ERROR_INVALID_VALUE, Rule::access_descriptors, "no such device");
      for (auto mapping = first; mapping != last; ++mapping) {
        const Allocation& memory = *mapping->second.handle->allocation;
        const Place place = memory.place;
        if (memory.is_multicast()) {
          const std::vector<TeamDevice> team = store_.supply().multicast_state(memory).team;
          if (std::find(team.begin(), team.end(), TeamDevice{configuration_.node, descriptor.location.id}) ==
              team.end())
            return refused(CUDA_ERROR_INVALID_DEVICE, Rule::multicast_grant,
                           "it was not added to the multicast object");
        } else if (!place.is_host() && !memory.remote &&
                   !configuration_.can_access_peer(descriptor.location.id, place.device))
          return refused(CUDA_ERROR_INVALID_DEVICE, Rule::access_peer,
                         fmt::format("it cannot reach device {}", place.device));
      }
      return {};
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return {};
    default:
      return refused(CUDA_ERROR_INVALID_VALUE, Rule::access_descriptors, "no such location");
  }
}

Answer VirtualMemory::set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptors,
                                 std::size_t count) {
  if (descriptors == nullptr || count == 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_descriptors, "no descriptors were given"};
  if (Answer answer = check_whole_mappings(address, bytes, Rule::access_whole_mappings); !answer.ok()) return answer;
  const Mapping* head = find_mapping(address);
  const Mapping* tail = bytes == 0 ? nullptr : find_mapping(address + bytes - 1);
  if (head == nullptr || tail == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_whole_mappings,
            fmt::format("the {} of the {} bytes at {:#x} is not mapped", head == nullptr ? "beginning" : "end", bytes,
                        address)};
  const auto first = mappings_.lower_bound(address);
  const auto last = first_hole(first, address + bytes);
  for (std::size_t index = 0; index < count; ++index)
    if (Answer answer = check_access_descriptor(descriptors[index], index, first, last); !answer.ok()) return answer;
  if (const CUdeviceptr hole = std::prev(last)->second.end(); hole < address + bytes)
    if (Answer answer = tolerated(Rule::access_no_hole, fmt::format("nothing is mapped at {:#x}", hole)); !answer.ok())
      return answer;
  const Behaviour& behaviour = configuration_.profile.behaviour;
  for (auto mapping = first; mapping != last; ++mapping)
    if (behaviour.fail_set_access || (behaviour.fail_set_access_on_rdma_memory &&
                                      mapping->second.handle->allocation->properties.allocFlags.gpuDirectRDMACapable))
      return {CUDA_ERROR_UNKNOWN, Rule::rights_on_behaviour, "setting access is configured to fail"};

  // The driver stops where the host is to be let into device memory, and what comes before in the list is done.
  const bool of_host =
      std::all_of(first, last, [](const auto& each) { return each.second.handle->allocation->place.is_host(); });
  const auto* const impossible = std::find_if(descriptors, descriptors + count, [&](const CUmemAccessDesc& each) {
    return each.location.type != CU_MEM_LOCATION_TYPE_DEVICE && each.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !of_host;
  });
  const auto possible = static_cast<std::size_t>(impossible - descriptors);
  if (Answer answer = change_host_views(first, last, descriptors, possible); !answer.ok()) return answer;
  for (auto mapping = first; mapping != last; ++mapping)
    mapping->second.rights = granted(mapping->second.rights, descriptors, possible);
  if (possible == count) return {};
  return {CUDA_ERROR_NOT_SUPPORTED, Rule::access_host_location,
          fmt::format("descriptor {} (location type {}) is for the host, and the range has device memory", possible,
                      static_cast<int>(impossible->location.type))};
}

// Lets the host's processors have what the descriptors grant them, in all mappings or in none.
Answer VirtualMemory::change_host_views(Mappings::iterator first, Mappings::iterator last,
                                        const CUmemAccessDesc* descriptors, std::size_t count) {
  const auto before = [](const Mapping& mapping) { return mapping.rights.get(Accessor::host()); };
  const auto after = [&](const Mapping& mapping) {
    return granted(mapping.rights, descriptors, count).get(Accessor::host());
  };
  for (auto mapping = first; mapping != last; ++mapping) {
    if (after(mapping->second) == before(mapping->second)) continue;
    Answer answer = host_view_.host_rights_change(mapping->second, after(mapping->second));
    if (answer.ok()) continue;
    for (auto changed = first; changed != mapping; ++changed) {
      if (after(changed->second) == before(changed->second) ||
          host_view_.host_rights_change(changed->second, before(changed->second)).ok())
        continue;
      (void)host_view_.host_rights_change(changed->second, CU_MEM_ACCESS_FLAGS_PROT_NONE);
      changed->second.rights.set(Accessor::host(), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    return answer;
  }
  return {};
}

Answer VirtualMemory::get_access(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) const {
  if (flags == nullptr || location == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "flags and location must not be null"};
  if (address == 0) return {CUDA_ERROR_INVALID_VALUE, Rule::access_query, "ptr must not be null"};
  const bool device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool host = location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if ((!device && !host) || (device && (location->id < 0 || location->id >= configuration_.devices)))
    return {CUDA_ERROR_INVALID_DEVICE, Rule::access_query,
            fmt::format("location type {} id {} does not exist", static_cast<int>(location->type), location->id)};
  const Mapping* mapping = find_mapping(address);
  *flags = 0;
  if (mapping == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::access_query, fmt::format("{:#x} is not mapped", address)};
  const Rights& rights = mapping->rights;
  if (location->type == CU_MEM_LOCATION_TYPE_HOST)
    *flags = static_cast<unsigned long long>(rights.of_host_location());
  else
    *flags = static_cast<unsigned long long>(rights.get(device ? Accessor::device(location->id) : Accessor::host()));
  return {};
}

Answer VirtualMemory::resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                              std::vector<Segment>& segments) const {
  const std::size_t before = segments.size();
  const CUdeviceptr end = address + bytes;
  const auto name = [&] { return who.is_host() ? std::string("the host") : fmt::format("device {}", who.ordinal()); };
  auto refuse = [&](std::string why) {
    segments.resize(before);
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::access_needed, std::move(why));
  };
  if (end < address) return refuse(fmt::format("{:#x} + {} is beyond all addresses", address, bytes));
  while (address < end) {
    const Mapping* mapping = find_mapping(address);
    if (mapping == nullptr) return refuse(fmt::format("{:#x} is not mapped", address));
    if (mapping->handle->allocation->is_multicast()) {
      segments.resize(before);
      return {CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multicast_multimem_only,
              fmt::format("{:#x} is an address of a multicast object", address)};
    }
    if (!mapping->rights.allow(who, write))
      return refuse(fmt::format("{} may not {} the mapping {:#x} + {}", name(), write ? "write" : "read",
                                mapping->address, mapping->bytes));
    const std::uint64_t count = std::min(end, mapping->end()) - address;
    segments.push_back({mapping->handle->allocation, address - mapping->address, count});
    address += count;
  }
  return {};
}

}  // namespace cuvmm::emulator::model
