// The library's types as the driver's.
#pragma once

#include "cuvmm/access_grant.hpp"
#include "cuvmm/memory_properties.hpp"
#include "driver/abi.hpp"

namespace cuvmm::driver {

constexpr abi::CUmemLocation to_abi(const Location& location) noexcept {
  return {static_cast<abi::CUmemLocationType>(location.kind), location.id};
}

constexpr abi::CUmemAllocationProp to_abi(const MemoryProperties& properties) noexcept {
  abi::CUmemAllocationProp converted{};
  converted.type = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
  converted.requestedHandleTypes = static_cast<abi::CUmemAllocationHandleType>(properties.handle_types.bits());
  converted.location = to_abi(properties.location);
  converted.allocFlags.compressionType =
      properties.compression ? abi::CU_MEM_ALLOCATION_COMP_GENERIC : abi::CU_MEM_ALLOCATION_COMP_NONE;
  converted.allocFlags.gpuDirectRDMACapable = properties.gpu_direct_rdma ? 1 : 0;
  return converted;
}

constexpr HandleTypes handle_types_from_abi(unsigned bits) noexcept {
  HandleTypes types;
  for (const HandleType type :
       {HandleType::posix_file_descriptor, HandleType::win32, HandleType::win32_kmt, HandleType::fabric})
    if ((bits & static_cast<unsigned>(type)) != 0) types = types | type;
  return types;
}

constexpr MemoryProperties from_abi(const abi::CUmemAllocationProp& properties) noexcept {
  return {.location = {static_cast<LocationKind>(properties.location.type), properties.location.id},
          .handle_types = handle_types_from_abi(static_cast<unsigned>(properties.requestedHandleTypes)),
          .compression = properties.allocFlags.compressionType != abi::CU_MEM_ALLOCATION_COMP_NONE,
          .gpu_direct_rdma = properties.allocFlags.gpuDirectRDMACapable != 0};
}

constexpr abi::CUmemAccessDesc to_abi(const AccessGrant& grant) noexcept {
  return {to_abi(grant.location), static_cast<abi::CUmemAccess_flags>(grant.rights)};
}

}  // namespace cuvmm::driver
