// Why a driver refused to map, unmap or free: it answers one code to whatever was wrong.
#pragma once

#include <cstddef>

#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"
#include "cuvmm/memory_properties.hpp"

namespace cuvmm {

// All return the failure as it is where the driver's code is not INVALID_VALUE, or no reason is found. Nothing is asked
// of the driver before it has refused.

// Of cuMemMap for addresses that were reserved. `offset`: in what the caller has reserved.
[[nodiscard]] Failure with_mapping_told(Failure failure, const Driver& driver, const MemoryProperties& memory,
                                        DeviceAddress reserved, std::size_t offset, std::size_t bytes);

// Of cuMemUnmap.
[[nodiscard]] Failure with_unmapping_told(Failure failure, const Driver& driver, DeviceAddress address,
                                          std::size_t bytes);

// Of cuMemAddressFree.
[[nodiscard]] Failure with_freeing_told(Failure failure, const Driver& driver, DeviceAddress address,
                                        std::size_t bytes);

}  // namespace cuvmm
