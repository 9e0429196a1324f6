#include "capability_trials.hpp"

#include <fmt/format.h>

#include <functional>
#include <span>
#include <vector>

#include "clean_up.hpp"
#include "cuvmm/access_grant.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/unique_descriptor.hpp"
#include "driver/convert.hpp"

namespace cuvmm {

using namespace abi;
using driver::EntryPoint;
using driver::try_call;

namespace {

// What a trial does with memory that is created, mapped and granted.
using Step = std::function<Result<void>(const PhysicalMemory&, const Mapping&)>;

Result<void> nothing_more(const PhysicalMemory&, const Mapping&) {
  return {};
}

Failure not_given(std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = "CapabilityTrials::run";
  failure.reason = std::move(reason);
  return failure;
}

// The whole chain of calls that memory takes before it can be used.
Result<void> use(const Driver& driver, const MemoryProperties& properties, std::span<const AccessGrant> grants,
                 const Step& step) {
  const CUmemAllocationProp converted = driver::to_abi(properties);
  std::size_t granule = 0;
  if (auto asked = try_call<EntryPoint::cuMemGetAllocationGranularity>(driver.interface(), &granule, &converted,
                                                                       CU_MEM_ALLOC_GRANULARITY_MINIMUM);
      !asked)
    return asked;
  const auto memory = PhysicalMemory::try_create(driver, properties, granule);
  if (!memory) return memory.failure();
  const auto addresses = AddressReservation::try_create(driver, granule);
  if (!addresses) return addresses.failure();
  const auto mapping = Mapping::try_create(*addresses, 0, *memory);
  if (!mapping) return mapping.failure();
  if (auto granted = try_grant(*mapping, grants); !granted) return granted;
  return step(*memory, *mapping);
}

CUmemAllocationProp properties_got(const PhysicalMemory& memory, Result<void>& asked) {
  CUmemAllocationProp got{};
  asked =
      try_call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(memory.driver().interface(), &got, memory.handle());
  return got;
}

Result<void> require_compression(const PhysicalMemory& memory, const Mapping&) {
  Result<void> asked;
  const CUmemAllocationProp got = properties_got(memory, asked);
  if (!asked) return asked;
  if (got.allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE)
    return not_given("Memory was asked to be compressible, and its properties say that it is not");
  return {};
}

Result<void> require_rdma(const PhysicalMemory& memory, const Mapping&) {
  Result<void> asked;
  const CUmemAllocationProp got = properties_got(memory, asked);
  if (!asked) return asked;
  if (got.allocFlags.gpuDirectRDMACapable == 0)
    return not_given("Memory was asked to be open to GPUDirect RDMA, and its properties say that it is not");
  return {};
}

// Takes the exported handle in again, as another process would.
Result<void> import(const Driver& driver, void* exported, CUmemAllocationHandleType type) {
  CUmemGenericAllocationHandle imported = 0;
  auto result = try_call<EntryPoint::cuMemImportFromShareableHandle>(driver.interface(), &imported, exported, type);
  if (result) clean_up<EntryPoint::cuMemRelease>(driver.interface(), imported);
  return result;
}

Result<void> share_by_descriptor(const PhysicalMemory& memory, const Mapping&) {
  constexpr auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int exported = -1;
  auto result = try_call<EntryPoint::cuMemExportToShareableHandle>(
      memory.driver().interface(), static_cast<void*>(&exported), memory.handle(), type, 0ULL);
  const UniqueDescriptor descriptor(exported);
  if (!result) return result;
  return import(memory.driver(), reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get())), type);
}

Result<void> share_by_fabric_handle(const PhysicalMemory& memory, const Mapping&) {
  constexpr auto type = CU_MEM_HANDLE_TYPE_FABRIC;
  CUmemFabricHandle exported{};
  auto result = try_call<EntryPoint::cuMemExportToShareableHandle>(
      memory.driver().interface(), static_cast<void*>(&exported), memory.handle(), type, 0ULL);
  if (!result) return result;
  return import(memory.driver(), &exported, type);
}

Result<void> require_read_only(const PhysicalMemory&, const Mapping& mapping, const Location& location) {
  const CUmemLocation converted = driver::to_abi(location);
  unsigned long long rights = 0;
  auto asked =
      try_call<EntryPoint::cuMemGetAccess>(mapping.driver().interface(), &rights, &converted, mapping.address().value);
  if (!asked) return asked;
  if (rights != CU_MEM_ACCESS_FLAGS_PROT_READ)
    return not_given(fmt::format("The right to read was granted, and the driver says that it is {}", rights));
  return {};
}

Result<void> export_dma_buf(const Device& device, const Mapping& mapping) {
  try {
    const CurrentContext context(device);
    int exported = -1;
    auto result = try_call<EntryPoint::cuMemGetHandleForAddressRange>(
        device.driver().interface(), static_cast<void*>(&exported), mapping.address().value, mapping.size(),
        CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ULL);
    const UniqueDescriptor descriptor(exported);
    return result;
  } catch (const Error& error) {
    return error.failure();
  }
}

}  // namespace

bool CapabilityTrials::exists(Feature feature) noexcept {
  switch (feature) {
    case Feature::virtual_memory_management:
    case Feature::posix_file_descriptor_handles:
    case Feature::fabric_handles:
    case Feature::compression:
    case Feature::gpu_direct_rdma:
    case Feature::dma_buf:
    case Feature::host_memory:
    case Feature::host_numa_memory:
    case Feature::host_numa_multinode_ipc:
    case Feature::read_only_access:
      return true;
    default:
      return false;
  }
}

Result<void> CapabilityTrials::run(Feature feature) const {
  const Driver& driver = device_.driver();
  const Location here = device_.location();
  const Location node = Location::host_numa(host_numa_node_ < 0 ? 0 : host_numa_node_);
  const AccessGrant reader{here, AccessRights::read};
  const AccessGrant user{here, AccessRights::read_write};
  const std::array both{user, AccessGrant{Location::host(), AccessRights::read_write}};
  const std::span only(&user, 1);
  switch (feature) {
    case Feature::virtual_memory_management:
      return use(driver, {.location = here}, only, nothing_more);
    case Feature::posix_file_descriptor_handles:
      return use(driver, {.location = here, .handle_types = HandleType::posix_file_descriptor}, only,
                 share_by_descriptor);
    case Feature::fabric_handles:
      return use(driver, {.location = here, .handle_types = HandleType::fabric}, only, share_by_fabric_handle);
    case Feature::compression:
      return use(driver, {.location = here, .compression = true}, only, require_compression);
    case Feature::gpu_direct_rdma:
      return use(driver, {.location = here, .gpu_direct_rdma = true}, only, require_rdma);
    case Feature::dma_buf:
      return use(driver, {.location = here}, only,
                 [&](const PhysicalMemory&, const Mapping& mapping) { return export_dma_buf(device_, mapping); });
    case Feature::host_memory:
      return use(driver, {.location = Location::host()}, both, nothing_more);
    case Feature::host_numa_memory:
      return use(driver, {.location = node}, both, nothing_more);
    case Feature::host_numa_multinode_ipc:
      return use(driver, {.location = node, .handle_types = HandleType::fabric}, only, share_by_fabric_handle);
    case Feature::read_only_access:
      return use(driver, {.location = here}, std::span(&reader, 1),
                 [&](const PhysicalMemory& memory, const Mapping& mapping) {
                   return require_read_only(memory, mapping, here);
                 });
    default:
      return not_given("There is no trial of it");
  }
}

std::optional<std::size_t> CapabilityTrials::largest_reservation() const {
  constexpr std::size_t whole_address_space = 128_TiB;  // of a process on x86-64
  for (std::size_t bytes = whole_address_space; bytes >= 2_MiB; bytes /= 2)
    if (AddressReservation::try_create(device_.driver(), bytes)) return bytes;
  return std::nullopt;
}

}  // namespace cuvmm
