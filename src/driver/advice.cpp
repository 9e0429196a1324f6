#include "driver/advice.hpp"

#include <array>

namespace cuvmm::driver {

using namespace abi;

namespace {

constexpr std::string_view peer_way_out =
    "Ask Device::can_access_peer first, or grant by MappedRange::grant_where_reachable, which returns the others";
// The library maps whole allocations: what is mapped in part was taken over with another size than it has.
constexpr std::string_view wrong_size_way_out =
    "Give memory that is imported or adopted the size that it was created with: have whoever created it send "
    "PhysicalMemory::size() with the handle. Where parts are to be mapped singly, create one allocation for each";
constexpr std::string_view access_way_out =
    "Grant the rights to that device after mapping (cuvmm::grant, MappedRange::grant), or make a context of one that "
    "has "
    "them current (cuvmm::CurrentContext); stay within what is mapped, of which holes are no part "
    "(MappedRange::chunks)";
constexpr std::string_view release_way_out =
    "Release each handle once, and use it no more after that: what PhysicalMemory::adopt took over, and what an owner "
    "has retained or imported, the owner releases by itself";

// What a user of the library does about a rule, where the rule book speaks to those who call the driver themselves.
struct RuleAdvice {
  std::string_view rule_id;
  std::string_view way_out;
};

constexpr auto rule_advice = std::to_array<RuleAdvice>({
    {"INIT-FIRST", "Open the driver with Driver::open"},
    {"NOT-AFTER-FORK", "Fork before Driver::open, or start the child with exec"},
    {"VMM-SUPPORTED", "Ask Capabilities before use, and fall back to memory of another kind (cuMemAlloc)"},
    {"CREATE-SIZE-GRANULARITY", "Round the size up: PhysicalMemory::rounded_up"},
    {"CREATE-LOCATION",
     "Name a device that there is (Driver::devices), Location::host_numa of a node with memory, or Location::host"},
    {"CREATE-HANDLE-TYPE",
     "Ask for none with Location::host(), and for HandleType::posix_file_descriptor elsewhere; to share memory of the "
     "host, use Location::host_numa"},
    {"RESERVE-SIZE-GRANULARITY", "Round the size up: cuvmm::align_up(bytes, granularity)"},
    {"HANDLE-LIVE", release_way_out},
    {"FREE-WHOLE-RESERVATION", "Pass the address and the size that were reserved"},
    {"MAP-WHOLE-ALLOCATION", wrong_size_way_out},
    {"UNMAP-IN-RESERVATION", "Pass a reserved address, and a size in multiples of the granularity"},
    {"ACCESS-DESCRIPTORS", "Name a location that there is (Driver::devices), and AccessRights::read or read_write"},
    {"ACCESS-HOST-LOCATION", "Copy (copy_to_device, copy_from_device), or create the memory at Location::host_numa"},
    {"ACCESS-PEER", peer_way_out},
    {"ACCESS-NEEDED", access_way_out},
    {"EXPORT-REQUESTED", "Name the handle type in MemoryProperties::handle_types when the memory is created"},
    {"IMPORT-TYPE", "Have the exporter export a type that this machine has: HandleType::posix_file_descriptor"},
    {"IPC-NOT-FOR-VMM", "Export the allocation's handle (ShareableHandle::export_from)"},
    {"CONTEXT-CURRENT", "Make one current: cuvmm::CurrentContext"},
    {"DEVICE-EXISTS", "Use an ordinal below Driver::device_count(); CUDA_VISIBLE_DEVICES renumbers devices"},
    {"CAPTURE-BEGUN", "Begin the capture first"},
    {"GRAPH-FINISHED", "End the capture first"},
});

// The same where hardware, or a setting of this system, would help on a real machine.
constexpr auto emulated_advice = std::to_array<RuleAdvice>({
    {"CREATE-FABRIC-IMEX",
     "Emulate IMEX channels (CUVMM_EMULATOR=imex-channels=1, or profile=gb200), and let this process open them; or ask "
     "for HandleType::posix_file_descriptor alone"},
    {"DEVICE-EXISTS",
     "Use an ordinal below Driver::device_count(), or emulate more devices: CUVMM_EMULATOR=devices=N, or cuvmm emulate "
     "--devices N"},
});

struct CallAdvice {
  EntryPoint entry;
  CUresult result;
  Advice advice;
};

constexpr auto call_advice = std::to_array<CallAdvice>({
    {EntryPoint::cuMemGetAllocationGranularity,
     CUDA_ERROR_INVALID_VALUE,
     {"GRANULARITY-OPTION, CREATE-PROPERTIES, CREATE-HANDLE-TYPE",
      "The properties must name a location and a known handle type, and the option must be minimum or recommended",
      "Fill in MemoryProperties as for PhysicalMemory::create"}},

    {EntryPoint::cuMemCreate,
     CUDA_ERROR_INVALID_VALUE,
     {"CREATE-SIZE-GRANULARITY, CREATE-PROPERTIES, CREATE-LOCATION, CREATE-HANDLE-TYPE",
      "The size must be a multiple of the granularity and not 0, the type PINNED, the location one that can hold "
      "memory, flags and reserved fields 0; HOST memory cannot be exportable, and Windows handle types need Windows",
      "Round the size up (PhysicalMemory::rounded_up), and use Location::host_numa for host memory that is to be "
      "shared"}},
    {EntryPoint::cuMemCreate,
     CUDA_ERROR_INVALID_DEVICE,
     {"CREATE-LOCATION", "The location must be a device that the driver shows to this process",
      "Use an ordinal below Driver::device_count(); CUDA_VISIBLE_DEVICES renumbers devices"}},
    {EntryPoint::cuMemCreate,
     CUDA_ERROR_OUT_OF_MEMORY,
     {"CREATE-CAPACITY",
      "The location has not that much free memory; memory that was released stays in use while mappings, exported "
      "descriptors or imports of it are left",
      "Release or recycle memory, close descriptors that are no longer needed, or ask for less"}},
    {EntryPoint::cuMemCreate,
     CUDA_ERROR_NOT_PERMITTED,
     {"CREATE-FABRIC-IMEX",
      "Fabric handles need an IMEX channel that this process may open, even where the device attribute says that they "
      "are supported",
      "Have /dev/nvidia-caps-imex-channels/channel0 created and made accessible, or ask for "
      "HandleType::posix_file_descriptor alone"}},
    {EntryPoint::cuMemCreate,
     CUDA_ERROR_NOT_SUPPORTED,
     {"VMM-SUPPORTED", "The device does not support these properties",
      "Ask the device for each feature before asking for it here"}},

    {EntryPoint::cuMemRelease,
     CUDA_ERROR_INVALID_VALUE,
     {"HANDLE-LIVE", "Each handle is released once for each creation, import or retain that returned it",
      release_way_out}},

    {EntryPoint::cuMemAddressReserve,
     CUDA_ERROR_INVALID_VALUE,
     {"RESERVE-SIZE-GRANULARITY, RESERVE-ALIGNMENT, RESERVE-HINT-ALIGNED",
      "The size must be a multiple of the granularity and not 0, the alignment 0 or a power of two, a hint aligned to "
      "the granularity, and flags 0",
      "Round the size up to the granularity, and pass alignment 0 and no hint unless they are needed"}},
    {EntryPoint::cuMemAddressReserve,
     CUDA_ERROR_OUT_OF_MEMORY,
     {"RESERVE-SPACE",
      "No range of virtual addresses of that size is free; one reservation can be at most 2^46 bytes on current "
      "drivers. Device memory has nothing to do with it",
      "Reserve a smaller range, or free reservations that are no longer needed"}},

    {EntryPoint::cuMemAddressFree,
     CUDA_ERROR_INVALID_VALUE,
     {"FREE-WHOLE-RESERVATION, FREE-AFTER-UNMAP",
      "Address and size must be exactly those of one reservation, with no mapping left in it",
      "Unmap everything in the range first, then free it whole"}},

    {EntryPoint::cuMemMap,
     CUDA_ERROR_INVALID_VALUE,
     {"MAP-IN-RESERVATION, MAP-ADDRESS-ALIGNED, MAP-FREE-ADDRESSES",
      "The range must start inside a reservation on a multiple of the granularity, overlap no mapping, and not be "
      "empty; the handle must be a live one and flags 0",
      "Reserve the addresses first, and unmap what is mapped there"}},
    {EntryPoint::cuMemMap,
     CUDA_ERROR_NOT_SUPPORTED,
     {"MAP-WHOLE-ALLOCATION", "A mapping covers a whole allocation: offset 0, and the size that it was created with",
      wrong_size_way_out}},

    {EntryPoint::cuMemUnmap,
     CUDA_ERROR_INVALID_VALUE,
     {"UNMAP-IN-RESERVATION, UNMAP-WHOLE-MAPPINGS",
      "The range must lie in a reservation and cover mappings only as a whole",
      "Unmap from the start of a mapping to the end of a mapping"}},

    {EntryPoint::cuMemSetAccess,
     CUDA_ERROR_INVALID_VALUE,
     {"ACCESS-WHOLE-MAPPINGS", "The range must begin and end with mapped memory and cover mappings only as a whole",
      "Map the memory first and grant over whole mappings"}},
    {EntryPoint::cuMemSetAccess,
     CUDA_ERROR_INVALID_DEVICE,
     {"ACCESS-DESCRIPTORS, ACCESS-PEER",
      "Each location must be a device that the driver shows to this process and that can reach the memory",
      "Use an ordinal below Driver::device_count(), and ask Device::can_access_peer first"}},
    {EntryPoint::cuMemSetAccess,
     CUDA_ERROR_NOT_SUPPORTED,
     {"ACCESS-HOST-LOCATION", "Device memory cannot be granted to the host on this machine",
      "Copy (copy_to_device, copy_from_device), or create the memory at Location::host_numa"}},
    {EntryPoint::cuMemSetAccess,
     CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
     {"ACCESS-PEER", "The device cannot reach the memory of the other device", peer_way_out}},

    {EntryPoint::cuMemGetAccess,
     CUDA_ERROR_INVALID_VALUE,
     {"ACCESS-QUERY", "The address must be mapped", "Map memory there before asking for the rights to it"}},

    {EntryPoint::cuMemRetainAllocationHandle,
     CUDA_ERROR_INVALID_VALUE,
     {"RETAIN-MAPPED",
      "The address must lie in a mapping of virtual memory management; memory of cuMemAlloc has no handle",
      "Pass an address inside a live mapping"}},

    {EntryPoint::cuMemGetAllocationPropertiesFromHandle,
     CUDA_ERROR_INVALID_VALUE,
     {"HANDLE-LIVE", "The handle must be a live one", "Pass a handle that has not been released"}},

    {EntryPoint::cuMemExportToShareableHandle,
     CUDA_ERROR_INVALID_VALUE,
     {"EXPORT-REQUESTED, EXPORT-NOT-IMPORTED",
      "Memory can be exported only as a handle type that was asked for when it was created, with flags 0; imported "
      "memory cannot be exported again",
      "Name the handle type in MemoryProperties::handle_types when the memory is created"}},
    {EntryPoint::cuMemExportToShareableHandle,
     CUDA_ERROR_NOT_PERMITTED,
     {"CREATE-FABRIC-IMEX", "Fabric handles need an IMEX channel that this process may open",
      "Have the channel device file created and made accessible, or export a file descriptor"}},

    {EntryPoint::cuMemImportFromShareableHandle,
     CUDA_ERROR_UNKNOWN,
     {"IMPORT-DESCRIPTOR", "The descriptor must be an open one that the driver exported, received by this process",
      "Send descriptors between processes with SCM_RIGHTS, never as numbers"}},
    {EntryPoint::cuMemImportFromShareableHandle,
     CUDA_ERROR_NOT_SUPPORTED,
     {"IMPORT-TYPE", "This machine does not import handles of that type", "Import the type that the exporter used"}},
    {EntryPoint::cuMemImportFromShareableHandle,
     CUDA_ERROR_NOT_PERMITTED,
     {"CREATE-FABRIC-IMEX", "Fabric handles need an IMEX channel that this process may open",
      "Have the channel device file created and made accessible, or use file descriptors"}},

    {EntryPoint::cuIpcGetMemHandle,
     CUDA_ERROR_INVALID_VALUE,
     {"IPC-NOT-FOR-VMM", "Legacy IPC works on memory of cuMemAlloc only, never on memory of cuMemCreate",
      "Export the allocation's handle (ShareableHandle::export_from)"}},
    {EntryPoint::cuMemFree,
     CUDA_ERROR_INVALID_VALUE,
     {"FREE-WHAT-WAS-ALLOCATED", "cuMemFree takes what cuMemAlloc returned, never a mapped address",
      "Unmap it instead (Mapping::unmap)"}},

    {EntryPoint::cuMulticastCreate,
     CUDA_ERROR_INVALID_VALUE,
     {"", "The size must be a multiple of the multicast granularity, the number of devices not 0, and flags 0",
      "Fill in the size, ask for the multicast granularity with it, and round it up"}},
    {EntryPoint::cuMulticastBindMem,
     CUDA_ERROR_OUT_OF_MEMORY,
     {"", "The switch between the devices has no room for another multicast object",
      "Let several buffers share one object at different offsets, or let all ranks go on without multicast"}},
    {EntryPoint::cuMulticastBindAddr,
     CUDA_ERROR_OUT_OF_MEMORY,
     {"", "The switch between the devices has no room for another multicast object",
      "Let several buffers share one object at different offsets, or let all ranks go on without multicast"}},
    {EntryPoint::cuMulticastBindMem,
     CUDA_ERROR_ILLEGAL_STATE,
     {"", "The fabric manager cannot set up multicast", "Have the fabric manager checked; go on without multicast"}},
});

constexpr auto copies_and_memsets = std::to_array<EntryPoint>(
    {EntryPoint::cuMemcpy, EntryPoint::cuMemcpyAsync, EntryPoint::cuMemcpyHtoD, EntryPoint::cuMemcpyDtoH,
     EntryPoint::cuMemcpyDtoD, EntryPoint::cuMemcpyHtoDAsync, EntryPoint::cuMemcpyDtoHAsync,
     EntryPoint::cuMemcpyDtoDAsync, EntryPoint::cuMemcpyPeer, EntryPoint::cuMemcpyPeerAsync, EntryPoint::cuMemsetD8,
     EntryPoint::cuMemsetD16, EntryPoint::cuMemsetD32, EntryPoint::cuMemsetD8Async, EntryPoint::cuMemsetD16Async,
     EntryPoint::cuMemsetD32Async});

struct CodeAdvice {
  CUresult result;
  Advice advice;
};

constexpr auto code_advice = std::to_array<CodeAdvice>({
    {CUDA_ERROR_NOT_INITIALIZED,
     {"INIT-FIRST", "cuInit comes before every other call", "Open the driver with Driver::open"}},
    {CUDA_ERROR_DEINITIALIZED,
     {"", "The driver has shut down: the process is ending", "Destroy all owners before main returns"}},
    {CUDA_ERROR_INVALID_CONTEXT,
     {"CONTEXT-CURRENT", "The call needs a current context that is alive", "Make one current: cuvmm::CurrentContext"}},
    {CUDA_ERROR_INVALID_DEVICE,
     {"DEVICE-EXISTS", "The device must be one that the driver shows to this process",
      "Use an ordinal below Driver::device_count(); CUDA_VISIBLE_DEVICES renumbers devices"}},
    {CUDA_ERROR_ILLEGAL_ADDRESS,
     {"ACCESS-NEEDED, UNMAP-NOT-WHILE-IN-USE",
      "Work on the device touched an address that is not mapped, or not granted to that device; unmapping does not "
      "wait "
      "for work that still uses the range. The context cannot be used any more",
      "Wait for all work on a range before unmapping it or changing its rights; start again with a new context"}},
    {CUDA_ERROR_LAUNCH_FAILED,
     {"", "A kernel ended with an exception, and the context cannot be used any more",
      "Start again with a new context"}},
    {CUDA_ERROR_NOT_PERMITTED, {"", "This process may not do that", "Ask an administrator for the permission"}},
    {CUDA_ERROR_SYSTEM_NOT_READY,
     {"", "The fabric manager is not ready, which may pass",
      "Try again a few times; all ranks together if there are several"}},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
     {"NOT-DURING-CAPTURE, CAPTURE-NOT-OBSERVED",
      "The call is not allowed while a stream of this thread or process is capturing, and the capture is now invalid",
      "Exchange the thread's capture mode for RELAXED around the call, or make it outside the capture"}},
    {CUDA_ERROR_NO_DEVICE,
     {"", "The driver shows no device to this process", "Check nvidia-smi and CUDA_VISIBLE_DEVICES"}},
});

bool is_copy_or_memset(EntryPoint entry) noexcept {
  for (const EntryPoint each : copies_and_memsets)
    if (each == entry) return true;
  return false;
}

bool is_handle_exchange(EntryPoint entry) noexcept {
  return entry == EntryPoint::cuMemExportToShareableHandle || entry == EntryPoint::cuMemImportFromShareableHandle ||
         entry == EntryPoint::cuMemGetHandleForAddressRange;
}

ErrorKind kind_of_out_of_memory(EntryPoint entry, bool concerns_host_memory) noexcept {
  if (is_handle_exchange(entry)) return ErrorKind::driver_failure;  // these allocate no memory, whatever they say
  if (info(entry).group == EntryPointGroup::multicast) return ErrorKind::out_of_multicast_slots;
  switch (entry) {
    case EntryPoint::cuMemAddressReserve:
      return ErrorKind::out_of_address_space;
    case EntryPoint::cuMemHostAlloc:
    case EntryPoint::cuMemAllocHost:
    case EntryPoint::cuMemHostRegister:
      return ErrorKind::out_of_host_memory;
    default:
      return concerns_host_memory ? ErrorKind::out_of_host_memory : ErrorKind::out_of_device_memory;
  }
}

}  // namespace

std::string_view way_out_where_emulated(std::string_view rule_id) noexcept {
  for (const RuleAdvice& each : emulated_advice)
    if (each.rule_id == rule_id) return each.way_out;
  return {};
}

std::string_view way_out_for_rule(std::string_view rule_id, bool emulated) noexcept {
  if (emulated)
    if (const auto here = way_out_where_emulated(rule_id); !here.empty()) return here;
  for (const RuleAdvice& each : rule_advice)
    if (each.rule_id == rule_id) return each.way_out;
  return {};
}

Advice advice_for(EntryPoint entry, CUresult result) noexcept {
  for (const CallAdvice& each : call_advice)
    if (each.entry == entry && each.result == result) return each.advice;
  if (result == CUDA_ERROR_INVALID_VALUE && is_copy_or_memset(entry))
    return {"ACCESS-NEEDED",
            "The device of the current context needs the right to read or write each byte that is touched, and all of "
            "them must be mapped",
            access_way_out};
  for (const CodeAdvice& each : code_advice)
    if (each.result == result) return each.advice;
  return {};
}

ErrorKind kind_of(EntryPoint entry, CUresult result, bool concerns_host_memory) noexcept {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return kind_of_out_of_memory(entry, concerns_host_memory);

    case CUDA_ERROR_NOT_PERMITTED:
      return ErrorKind::not_permitted;

    case CUDA_ERROR_NOT_SUPPORTED:
      // Any device that can map at all maps a whole allocation: what it refuses is a part of one.
      return entry == EntryPoint::cuMemMap ? ErrorKind::invalid_use : ErrorKind::not_supported;
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return ErrorKind::not_supported;

    case CUDA_ERROR_TIMEOUT:
      return ErrorKind::timed_out;

    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return ErrorKind::driver_unavailable;

    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return ErrorKind::device_lost;

    case CUDA_ERROR_UNKNOWN:
      return entry == EntryPoint::cuMemImportFromShareableHandle ? ErrorKind::invalid_use : ErrorKind::driver_failure;

    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_NOT_MAPPED:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
    case CUDA_ERROR_PEER_ACCESS_NOT_ENABLED:
    case CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return ErrorKind::invalid_use;

    default:
      return ErrorKind::driver_failure;
  }
}

}  // namespace cuvmm::driver
