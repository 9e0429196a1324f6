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

constexpr abi::CUmemAccessDesc to_abi(const AccessGrant& grant) noexcept {
  return {to_abi(grant.location), static_cast<abi::CUmemAccess_flags>(grant.rights)};
}

}  // namespace cuvmm::driver
