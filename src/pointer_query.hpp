// What the driver tells of an address, in one call.
#pragma once

#include <cstddef>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"
#include "driver/abi.hpp"

namespace cuvmm {

struct PointerFacts {
  abi::CUmemorytype memory_type{};  // 0: nothing is known of the address
  int device = 0;
  bool managed = false;
  bool in_pool = false;
  bool has_context = false;  // false for memory of cuMemCreate
  bool legacy_ipc_capable = false;
  bool rdma_capable = false;
  unsigned handle_types = 0;
  DeviceAddress base;  // of the mapping or the allocation
  std::size_t size = 0;
  DeviceAddress range_base;  // of the reservation
  std::size_t range_size = 0;

  [[nodiscard]] bool known() const noexcept { return memory_type != 0; }
  [[nodiscard]] bool on_host() const noexcept { return memory_type == abi::CU_MEMORYTYPE_HOST; }
};

// cuPointerGetAttributes, which answers success and zeros for an address of which the driver knows nothing. Needs no
// context, and tells of memory that no device may access, too.
[[nodiscard]] Result<PointerFacts> query_pointer(const Driver& driver, DeviceAddress address);

}  // namespace cuvmm
