// What a driver that is wrong on purpose is to be wrong about.
#pragma once

#include <cstdint>
#include <string_view>

namespace cuvmm::driver {

// Any of them together.
struct Lies {
  // One byte of what a copy out of device memory wrote is flipped: of each such copy without a stream, or of the n-th
  // of them alone; or of each copy in a stream.
  bool flip_copied_byte = false;
  std::uint64_t only_copy = 0;  // from 1; 0: each
  bool flip_streamed_byte = false;

  // A device's grant to read is passed on as one to read and write, while cuMemGetAccess goes on to answer READ: for
  // memory that is mapped at one address, or for memory that is mapped at several.
  bool ignore_read_only = false;
  bool ignore_read_only_alias = false;

  // cuMemRelease answers success and releases nothing: of memory that is still mapped, or whose addresses are freed; or
  // of memory that was unmapped from addresses that are still reserved, until those are freed.
  bool keep_released_memory = false;
  bool keep_sleeping_memory = false;

  // Of the calls of cuMemSetAccess for a mapped address only the first has effect, and of its list only the first
  // descriptor of a device; all answer success. Descriptors of the host are left alone, and so are multicast
  // objects.
  bool ignore_second_grant = false;

  // Descriptors of the host are passed on without any right; the others of the list have effect.
  bool ignore_host_grant = false;

  // cuMemMap right behind another mapping of the same reservation shows that one's memory again, if both memories are
  // of one place and that one's is mapped nowhere else.
  bool repeat_chunk = false;

  // cuMemMap where other memory of that size lay before, and was unmapped, shows the former memory.
  bool keep_replaced_memory = false;

  // cuMemMap of memory that is mapped already shows new memory of that size: where it lies in another reservation that
  // is no smaller; in a smaller one; in the same one.
  bool separate_aliases = false;
  bool separate_moved_memory = false;
  bool separate_ring = false;

  // cuMemMap right behind memory of another place shows new memory of that place.
  bool gather_places = false;

  // cuEventQuery answers success for work that is not done.
  bool report_events_done = false;

  // cuMemGetAllocationPropertiesFromHandle tells of compression whether or not it was given.
  bool claim_compression = false;

  // cuMemExportToShareableHandle answers descriptors of new memory of that size for all exports of a memory but the
  // first.
  bool renew_second_export = false;

  // cuMemImportFromShareableHandle imports once more what was imported first from a descriptor, as long as that handle
  // is not released.
  bool repeat_import = false;

  // cuMemRelease of imported memory answers success and releases nothing, in a process that has exported nothing.
  bool keep_imported_memory = false;

  // cuMemCreate creates memory that is asked for with handle types of Windows, without them.
  bool accept_windows_handles = false;

  // The fabric handles of the host's memory have a bit flipped.
  bool flip_host_fabric_handle = false;

  // cuMulticastCreate takes a size that is no multiple of 2 MiB, and rounds it up.
  bool round_multicast_sizes = false;

  // cuMulticastAddDevice answers success for a device that was added before.
  bool accept_device_twice = false;

  // cuMulticastBindMem binds memory from its beginning, whatever offset in it is asked for.
  bool misplace_bind = false;

  // cuMulticastBindMem of memory to all of an object binds other memory in its place: in each object that this process
  // created the second one that it binds so. What is stored to the multicast address does not reach that memory.
  bool lose_replica = false;

  // Kernels by which ranks wait for each other, whose names end in "_meet" or "_barrier", are not started:
  // cuLaunchKernel answers success, and nobody waits.
  bool skip_barriers = false;

  friend bool operator==(const Lies&, const Lies&) = default;
};

// Reads names of lies separated by commas, those of the fields above; flip_copied_byte:N stands for the n-th copy
// alone. Throws InvalidUse, quoting what is none of them.
[[nodiscard]] Lies parse_lies(std::string_view text);

}  // namespace cuvmm::driver
