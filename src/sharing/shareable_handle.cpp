// How handles come from memory, and memory from handles. What a handle holds: handle_content.cpp.
#include "cuvmm/sharing/shareable_handle.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "clean_up.hpp"
#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "fabric_refusals.hpp"
#include "refusal.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/memory_size.hpp"
#include "windows_handles.hpp"

namespace cuvmm::sharing {

using driver::EntryPoint;
using driver::try_call;

namespace {

static_assert(sizeof(FabricBytes) == sizeof(abi::CUmemFabricHandle));

std::string text_of(const PhysicalMemory& memory, HandleType type) {
  return fmt::format("memory = {} on {} that is exportable as {}, type = {}", format_bytes(memory.size()),
                     to_string(memory.properties().location), to_string(memory.properties().handle_types),
                     to_string(type));
}

std::string_view option_for(HandleType type) noexcept {
  return type == HandleType::fabric ? "HandleType::fabric" : "HandleType::posix_file_descriptor";
}

// Found before the driver, which only says INVALID_VALUE, and crashes for memory that is gone.
std::optional<Failure> refusal_to_export(const PhysicalMemory& memory, HandleType type) {
  constexpr std::string_view call = "ShareableHandle::export_from";
  if (auto refused = windows_handles_refused(call, type)) return refused;
  const HandleTypes types = memory.properties().handle_types;
  if (types.contains(type)) return std::nullopt;
  Failure failure = invalid_use(
      call, text_of(memory, type),
      types.empty()
          ? "Memory can be exported only as what was named when it was created, and imported memory not at all"
          : "Memory can be exported only as what was named when it was created",
      fmt::format("Create it with MemoryProperties::handle_types = {}{}", option_for(type),
                  types.empty() ? "; of imported memory, pass on the handle that it was imported from" : ""),
      types.empty() ? "EXPORT-REQUESTED, EXPORT-NOT-IMPORTED" : "EXPORT-REQUESTED");
  if (type == HandleType::fabric)
    if (const auto refused = FabricRefusals::of(memory.driver().shared_interface())->at(memory.properties().location)) {
      failure.reason =
          "memory there is created without fabric handles, since the driver refused them: " + refused->message();
      failure.way_out = types.empty() ? refused->way_out : "Export it as " + to_string(types);
    }
  return failure;
}

void name_fabric_feature(Failure& failure) {
  if (failure.kind == ErrorKind::not_permitted || failure.kind == ErrorKind::not_supported)
    failure.feature = "fabric handles";
}

// The driver's UNKNOWN tells nothing of the descriptor; the system does.
void explain_descriptor(Failure& failure, int descriptor) {
  if (failure.code != abi::CUDA_ERROR_UNKNOWN && failure.code != abi::CUDA_ERROR_INVALID_VALUE) return;
  failure.kind = ErrorKind::invalid_use;
  failure.reason = fmt::format("descriptor {} is {}", descriptor, what_it_is(descriptor));
}

void explain_fabric_handle(Failure& failure) {
  name_fabric_feature(failure);
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE && failure.code != abi::CUDA_ERROR_UNKNOWN) return;
  failure.kind = ErrorKind::invalid_use;
  failure.rule_ids = "IMPORT-DESCRIPTOR";
  failure.rule =
      "The bytes must be a fabric handle of memory that somebody still has, exported in the same IMEX domain";
  failure.way_out =
      "Keep the memory until all have imported it; where the exporter is another machine, have both put into one IMEX "
      "domain, or use descriptors within a machine";
}

}  // namespace

Result<ShareableHandle> ShareableHandle::try_export_from(const PhysicalMemory& memory, HandleType type) {
  if (memory.size() == 0) return owns_nothing("ShareableHandle::export_from", "memory");
  if (const auto refused = refusal_to_export(memory, type)) return *refused;
  const auto converted = static_cast<abi::CUmemAllocationHandleType>(type);
  driver::Interface& interface = memory.driver().interface();
  if (type == HandleType::fabric) {
    abi::CUmemFabricHandle exported{};
    const auto result = try_call<EntryPoint::cuMemExportToShareableHandle>(interface, static_cast<void*>(&exported),
                                                                           memory.handle(), converted, 0ULL);
    if (!result) {
      Failure failure = result.failure();
      name_fabric_feature(failure);
      return failure;
    }
    FabricBytes bytes{};
    std::memcpy(bytes.data(), &exported, sizeof bytes);
    return ShareableHandle(bytes);
  }
  int exported = -1;
  const auto result = try_call<EntryPoint::cuMemExportToShareableHandle>(interface, static_cast<void*>(&exported),
                                                                         memory.handle(), converted, 0ULL);
  if (!result) return result.failure();
  auto safe = made_safe(UniqueDescriptor(exported));
  if (!safe) return safe.failure();
  return ShareableHandle(std::move(safe).value());
}

ShareableHandle ShareableHandle::export_from(const PhysicalMemory& memory, HandleType type) {
  return try_export_from(memory, type).value();
}

Result<PhysicalMemory> ShareableHandle::try_import_into(const Driver& driver, const ImportedMemory& memory) const try {
  if (auto sound = require_size_of_memory("ShareableHandle::import_into", memory.bytes,
                                          "Have the exporter send PhysicalMemory::size() with the handle");
      !sound)
    return sound.failure();
  if (type() == HandleType::posix_file_descriptor && descriptor() < 0)
    return owns_nothing("ShareableHandle::import_into", "handle");
  const auto converted = static_cast<abi::CUmemAllocationHandleType>(type());
  abi::CUmemFabricHandle fabric{};
  void* shareable = &fabric;
  if (const auto* const bytes = std::get_if<FabricBytes>(&content_))
    std::memcpy(&fabric, bytes->data(), sizeof fabric);
  else
    shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor()));
  unsigned long long handle = 0;
  const auto imported =
      try_call<EntryPoint::cuMemImportFromShareableHandle>(driver.interface(), &handle, shareable, converted);
  if (!imported) {
    Failure failure = imported.failure();
    type() == HandleType::fabric ? explain_fabric_handle(failure) : explain_descriptor(failure, descriptor());
    return failure;
  }
  try {
    if (!memory.properties) return PhysicalMemory::adopt(driver, handle, memory.bytes);
    MemoryProperties properties = *memory.properties;
    properties.handle_types = {};
    properties.gpu_direct_rdma = false;
    return PhysicalMemory::adopt(driver, handle, properties, memory.bytes);
  } catch (...) {
    clean_up<EntryPoint::cuMemRelease>(driver.interface(), handle);  // not adopted: still ours
    throw;
  }
} catch (const Error& error) {
  return error.failure();
}

PhysicalMemory ShareableHandle::import_into(const Driver& driver, const ImportedMemory& memory) const {
  return try_import_into(driver, memory).value();
}

}  // namespace cuvmm::sharing
