// Device memory as dma-bufs, for network cards and other drivers of the kernel.
#pragma once

#include <cstddef>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/unique_descriptor.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

// The part of a range that lies in one allocation. A dma-buf begins and ends with a page of the host, so that the bytes
// that were asked for may begin a little inside it. The descriptor keeps the memory alive, also when it is unmapped.
struct DmaBuf {
  UniqueDescriptor descriptor;
  std::size_t offset = 0;  // of the first byte asked for, within the dma-buf
  std::size_t length = 0;  // of what was asked for, bytes
  DeviceAddress address;   // of that first byte
};

enum class DmaBufMapping : unsigned char {
  platform,  // as the platform prefers
  pcie,      // through PCIe BAR1, also where there is another path to the device
};

// A dma-buf for each allocation or mapping that the `bytes` bytes from `address` on touch, in the order of their
// addresses (cuMemGetHandleForAddressRange; CUDA 11.7). Rights to the memory are not needed, a current context is.
// Throws InvalidUse for an empty range or one that is not memory throughout, NotSupported with feature and reason where
// the device, the driver or that memory has no dma-bufs, OutOfDescriptors, and other Errors as the driver fails; then
// all descriptors that were made are closed. Memory of a PhysicalSource is not re-used after that; a stream-ordered
// pool does re-use what was freed to it, also while a dma-buf leads there, and its dma-bufs begin with the allocation.
// Thread-safe.
[[nodiscard]] std::vector<DmaBuf> dma_bufs(const Driver& driver, DeviceAddress address, std::size_t bytes,
                                           DmaBufMapping mapping = DmaBufMapping::platform);
[[nodiscard]] Result<std::vector<DmaBuf>> try_dma_bufs(const Driver& driver, DeviceAddress address, std::size_t bytes,
                                                       DmaBufMapping mapping = DmaBufMapping::platform);

}  // namespace cuvmm
