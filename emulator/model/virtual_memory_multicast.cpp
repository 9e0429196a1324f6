// Multicast objects: properties, devices, and what is bound to them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "emulator/model/virtual_memory.hpp"

namespace cuvmm::emulator::model {
namespace {

constexpr unsigned long long known_handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;

Answer refused(CUresult code, Rule rule, std::string what) {
  return {code, rule, std::move(what)};
}

CUmemAllocationProp as_allocation(const CUmulticastObjectProp& properties) {
  CUmemAllocationProp form{};
  form.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(properties.handleTypes & known_handle_types);
  return form;
}

}  // namespace

Answer VirtualMemory::check_multicast_supported() const {
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0) return {};
  return refused(CUDA_ERROR_NOT_SUPPORTED, Rule::multicast_supported, "the attribute is 0 on this device");
}

Answer VirtualMemory::check_multicast_properties(const CUmulticastObjectProp* properties) const {
  if (properties == nullptr) return refused(CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "prop must not be null");
  const auto malformed = [](std::string what) {
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_properties, std::move(what));
  };
  if (properties->numDevices == 0) return malformed("numDevices is 0");
  if (properties->size == 0) return malformed("size is 0");
  if (properties->flags != 0) return malformed(fmt::format("flags are {:#x}", properties->flags));
  if ((properties->handleTypes & ~known_handle_types) != 0)
    return malformed(fmt::format("handleTypes is {:#x}, of which some do not exist here", properties->handleTypes));
  return {};
}

Answer VirtualMemory::multicast_granularity(std::size_t* granularity, const CUmulticastObjectProp* properties,
                                            CUmulticastGranularity_flags option) const {
  if (Answer answer = check_multicast_supported(); !answer.ok()) return answer;
  if (granularity == nullptr)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "granularity must not be null");
  if (Answer answer = check_multicast_properties(properties); !answer.ok()) return answer;
  const Profile& profile = configuration_.profile;
  if (option == CU_MULTICAST_GRANULARITY_MINIMUM) {
    *granularity = profile.multicast_granularity;
  } else if (option == CU_MULTICAST_GRANULARITY_RECOMMENDED) {
    const std::uint64_t capped = std::min<std::uint64_t>(properties->size, profile.multicast_recommended);
    *granularity = std::max(std::bit_ceil(capped), profile.multicast_granularity);
  } else {
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::granularity_option,
                   fmt::format("option is {}", static_cast<int>(option)));
  }
  return {};
}

Answer VirtualMemory::create_multicast(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  if (Answer answer = check_multicast_supported(); !answer.ok()) return answer;
  if (handle == nullptr) return refused(CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "mcHandle must not be null");
  if (Answer answer = check_multicast_properties(properties); !answer.ok()) return answer;
  if (properties->size % configuration_.profile.multicast_granularity != 0)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_size,
                   fmt::format("size is {} bytes, the minimum granularity {}", properties->size,
                               configuration_.profile.multicast_granularity));
  CUmemAllocationProp form = as_allocation(*properties);
  if (Answer answer = check_handle_types(form); !answer.ok()) return answer;
  if ((form.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && !store_.has_imex_channel())
    return refused(CUDA_ERROR_NOT_PERMITTED, Rule::create_fabric_permission,
                   fmt::format("handleTypes is {:#x}: there is no IMEX channel that this process may open",
                               properties->handleTypes));
  Allocation& object = store_.create_multicast(properties->numDevices, properties->size, form);
  try {
    *handle = add_handle(object, false).value;
  } catch (...) {
    store_.drop_reference(object);
    throw;
  }
  store_.drop_reference(object);  // the handle has its own
  return {};
}

Handle* VirtualMemory::find_multicast(CUmemGenericAllocationHandle value, Answer& answer) const {
  answer = check_multicast_supported();
  if (!answer.ok()) return nullptr;
  Handle* const handle = find_handle(value);
  if (handle == nullptr) {
    answer = dead_handle(value);
    return nullptr;
  }
  if (handle->allocation->is_multicast()) return handle;
  answer = refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle, fmt::format("{:#x} is a handle of memory", value));
  return nullptr;
}

Answer VirtualMemory::join(CUmemGenericAllocationHandle object, CUdevice device) {
  Answer wrong;
  Handle* const handle = find_multicast(object, wrong);
  if (handle == nullptr) return wrong;
  if (device < 0 || device >= configuration_.devices)
    return refused(CUDA_ERROR_INVALID_DEVICE, Rule::device_exists,
                   fmt::format("device {} of {}", device, configuration_.devices));
  const MulticastState state = store_.supply().multicast_state(*handle->allocation);
  for (const TeamDevice& member : state.team)
    if (member.node == configuration_.node && !configuration_.can_access_peer(device, member.device))
      return refused(CUDA_ERROR_INVALID_DEVICE, Rule::multicast_reach,
                     fmt::format("device {} cannot reach device {}, which was added before", device, member.device));
  const auto not_added = [&](std::string why) {
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_join, std::move(why));
  };
  switch (store_.supply().join_multicast(*handle->allocation, device)) {
    case JoinOutcome::joined_before:
      return not_added(fmt::format("device {} was added before", device));
    case JoinOutcome::team_full:
      return not_added(fmt::format("all {} devices were added before", handle->allocation->multicast_devices));
    case JoinOutcome::joined:
      break;
  }
  return {};
}

// A device in whose stead nobody could add one: there are too few, or nobody has the object who is not in this call.
Answer VirtualMemory::incomplete(const Allocation& object, const MulticastState& state, bool alone) const {
  const auto lacks = [&](std::string_view why) {
    return refused(
        CUDA_ERROR_TIMEOUT, Rule::multicast_team_complete,
        fmt::format("{} of the {} devices were not added, and {}", state.missing, object.multicast_devices, why));
  };
  if (static_cast<std::uint64_t>(state.devices_in_reach) < object.multicast_devices)
    return lacks(fmt::format("only {} are in the object's reach", state.devices_in_reach));
  if (alone && !state.others)
    return lacks(
        "nobody could add them: no other process has the object, nor has it been exported, and this thread is "
        "the only one of the process");
  Answer waiting = lacks("this call waits");
  waiting.code = CUDA_ERROR_NOT_READY;
  return waiting;
}

Answer VirtualMemory::check_team(CUmemGenericAllocationHandle object, bool alone) const {
  const Handle* const handle = find_handle(object);
  if (handle == nullptr || !handle->allocation->is_multicast()) return {};
  const MulticastState state = store_.supply().multicast_state(*handle->allocation);
  return state.missing == 0 ? Answer() : incomplete(*handle->allocation, state, alone);
}

// The memory that is named by its handle, or by an address at which it is mapped.
Answer VirtualMemory::find_bound_memory(const MulticastBind& wanted, Allocation** memory, std::uint64_t* offset) const {
  const Handle* handle = nullptr;
  if (wanted.by_address) {
    const Mapping* const mapping = find_mapping(wanted.address);
    if (mapping == nullptr)
      return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_memory,
                     fmt::format("no memory of cuMemCreate is mapped at {:#x}", wanted.address));
    handle = mapping->handle;
    *offset = wanted.address - mapping->address;
  } else {
    handle = find_handle(wanted.memory);
    if (handle == nullptr) return dead_handle(wanted.memory);
    *offset = wanted.memory_offset;
  }
  *memory = handle->allocation;
  if (!(*memory)->is_multicast()) return {};
  return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle,
                 "what is to be bound is a multicast object and no memory");
}

Answer VirtualMemory::check_bind(const MulticastBind& wanted, const Handle& object, const Allocation& memory,
                                 std::uint64_t memory_offset) const {
  const std::uint64_t granularity = configuration_.profile.multicast_granularity;
  const auto bad_range = [&](std::string_view why) {
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_range,
                   fmt::format("{} bytes from {} on of memory of {}, at {} of an object of {}: {}", wanted.bytes,
                               memory_offset, memory.bytes, wanted.offset, object.allocation->bytes, why));
  };
  if (wanted.bytes == 0) return bad_range("nothing is to be bound");
  if (wanted.bytes % granularity != 0 || wanted.offset % granularity != 0 || memory_offset % granularity != 0)
    return bad_range(fmt::format("not in multiples of {}", granularity));
  if (memory_offset > memory.bytes || wanted.bytes > memory.bytes - memory_offset)
    return bad_range("the memory is smaller");
  if (wanted.offset > object.allocation->bytes || wanted.bytes > object.allocation->bytes - wanted.offset)
    return bad_range("the object is smaller");
  if (memory.place.is_host())
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_memory, "it is memory of the host");
  if (memory.remote)
    return refused(CUDA_ERROR_INVALID_DEVICE, Rule::multicast_bind_memory, "it is memory of another node's device");
  if (wanted.device && *wanted.device != memory.place.device)
    return refused(
        CUDA_ERROR_INVALID_DEVICE, Rule::multicast_bind_memory,
        fmt::format("device {} is named, and the memory is device {}'s", *wanted.device, memory.place.device));
  const bool shared = object.imported || object.allocation->properties.requestedHandleTypes != 0;
  if (shared && memory.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_shareable,
                   object.imported ? "the object was imported, and the memory has no handle type"
                                   : "the object can be exported, and the memory cannot");
  return {};
}

// What the configuration has in store for a bind that would succeed.
Answer VirtualMemory::failure_of_bind(int device) {
  for (std::size_t index = 0; index < failures_left_.size(); ++index) {
    const MulticastFailure& failure = configuration_.multicast_failures[index];
    if (failure.device != device || failures_left_[index] == 0) continue;
    if (failures_left_[index] > 0) --failures_left_[index];
    const auto fails = [&](CUresult code, Rule rule) {
      return refused(code, rule, fmt::format("multicast-bind-fails says so of device {}", device));
    };
    switch (failure.kind) {
      case MulticastFailure::Kind::not_ready:
        return fails(CUDA_ERROR_SYSTEM_NOT_READY, Rule::rights_on_behaviour);
      case MulticastFailure::Kind::illegal_state:
        return fails(CUDA_ERROR_ILLEGAL_STATE, Rule::rights_on_behaviour);
      case MulticastFailure::Kind::out_of_memory:
        return fails(CUDA_ERROR_OUT_OF_MEMORY, Rule::multicast_slots);
    }
  }
  return {};
}

Answer VirtualMemory::bind(const MulticastBind& wanted, bool alone) {
  Answer wrong;
  Handle* const handle = find_multicast(wanted.object, wrong);
  if (handle == nullptr) return wrong;
  if (wanted.flags != 0)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", wanted.flags));
  Allocation* memory = nullptr;
  std::uint64_t memory_offset = 0;
  if (Answer answer = find_bound_memory(wanted, &memory, &memory_offset); !answer.ok()) return answer;
  if (Answer answer = check_bind(wanted, *handle, *memory, memory_offset); !answer.ok()) return answer;
  Allocation& object = *handle->allocation;
  const MulticastState state = store_.supply().multicast_state(object);
  if (state.missing > 0) return incomplete(object, state, alone);
  const int device = memory->place.device;
  const TeamDevice member{configuration_.node, device};
  if (std::find(state.team.begin(), state.team.end(), member) != state.team.end())
    if (Answer failure = failure_of_bind(device); !failure.ok()) return failure;
  switch (store_.supply().bind_multicast(object, device, wanted.offset, wanted.bytes, *memory, memory_offset)) {
    case BindOutcome::incomplete:
      return incomplete(object, state, alone);
    case BindOutcome::not_in_team:
      return refused(CUDA_ERROR_INVALID_DEVICE, Rule::multicast_bind_memory,
                     fmt::format("device {}, whose memory it is, was not added to the object", device));
    case BindOutcome::bound_before:
      return refused(
          CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_once,
          fmt::format("device {} has memory bound in the {} bytes from {} on", device, wanted.bytes, wanted.offset));
    case BindOutcome::no_slot:
      return refused(
          CUDA_ERROR_OUT_OF_MEMORY, Rule::multicast_slots,
          fmt::format("device {} is a part of {} objects already", device, configuration_.multicast_slot_count()));
    case BindOutcome::bound:
      break;
  }
  ++memory->binds;
  return {};
}

Answer VirtualMemory::unbind(CUmemGenericAllocationHandle object, CUdevice device, std::uint64_t offset,
                             std::uint64_t bytes) {
  Answer wrong;
  Handle* const handle = find_multicast(object, wrong);
  if (handle == nullptr) return wrong;
  if (device < 0 || device >= configuration_.devices)
    return refused(CUDA_ERROR_INVALID_DEVICE, Rule::device_exists,
                   fmt::format("device {} of {}", device, configuration_.devices));
  const bool mapped = std::any_of(handles_.begin(), handles_.end(), [&](const auto& entry) {
    return entry.second.allocation == handle->allocation && entry.second.mappings > 0;
  });
  if (mapped)
    if (Answer answer = tolerated(Rule::multicast_unbind_unmapped,
                                  fmt::format("the object of handle {:#x} is still mapped", object));
        !answer.ok())
      return answer;
  std::uint64_t memory = 0;
  if (!store_.supply().unbind_multicast(*handle->allocation, device, offset, bytes, &memory))
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::multicast_unbind_exact,
                   fmt::format("device {} has not bound {} bytes at {}, or has unbound them", device, bytes, offset));
  if (Allocation* const known = store_.find(memory); known != nullptr && known->binds > 0) --known->binds;
  return {};
}

// Whether somebody of this process refers to the memory besides the handle, and those of its mappings that stay.
Answer VirtualMemory::check_not_last_of_bound(const Handle& handle, std::size_t mappings_that_go) const {
  const Allocation& memory = *handle.allocation;
  if (memory.binds == 0 || handle.mappings > mappings_that_go) return {};
  for (const auto& [value, other] : handles_)
    if (&other != &handle && other.allocation == &memory) return {};
  if (!store_.supply().is_bound(memory)) return {};
  return tolerated(Rule::multicast_unbind_first,
                   fmt::format("the last that refers to {} bytes of device {} is to go, and they are bound to a "
                               "multicast object",
                               memory.bytes, memory.place.device));
}

Answer VirtualMemory::check_memory_stays(Mappings::const_iterator first, Mappings::const_iterator last) const {
  for (auto mapping = first; mapping != last; ++mapping) {
    const Handle& handle = *mapping->second.handle;
    if (handle.references > 0 || handle.allocation->binds == 0) continue;
    const auto going = std::count_if(first, last, [&](const auto& entry) { return entry.second.handle == &handle; });
    if (Answer answer = check_not_last_of_bound(handle, static_cast<std::size_t>(going)); !answer.ok()) return answer;
  }
  return {};
}

Answer VirtualMemory::resolve_multicast(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                                        Segment* segment) const {
  const auto no = [&](std::string_view why) {
    return refused(CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multimem_address,
                   fmt::format("{} bytes at {:#x}: {}", bytes, address, why));
  };
  const Mapping* const mapping = find_mapping(address);
  if (mapping == nullptr || !mapping->handle->allocation->is_multicast())
    return no("no multicast object is mapped there");
  if (bytes > mapping->end() - address) return no("they run past the multicast object");
  if (!mapping->rights.allow(who, write))
    return no(fmt::format("device {} may not {} there", who.ordinal(), write ? "write" : "read"));
  *segment = {mapping->handle->allocation, address - mapping->address, bytes};
  return {};
}

}  // namespace cuvmm::emulator::model
