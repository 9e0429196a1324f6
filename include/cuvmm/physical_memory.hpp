// The owner of one allocation of physical memory.
#pragma once

#include <cstddef>
#include <memory>

#include "cuvmm/driver.hpp"
#include "cuvmm/memory_properties.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

class Mapping;
class PhysicalSource;
namespace range {
class RangeAddresses;
}

// Physical memory with no address (guide 4.16.2.1; cuMemCreate, cuMemRelease). It cannot be divided: it is mapped,
// granted and released as a whole. Its mappings share the ownership, so it is given back when the owner and all its
// mappings are gone. Destruction never throws: a failure goes to the clean-up failure handler.
//
// Different objects may be used from different threads. A moved-from one may be assigned to or destroyed, and asked for
// its size and handle, which are 0; all else is refused (InvalidUse).
class PhysicalMemory {
 public:
  // Creates memory of exactly `bytes` bytes. Throws InvalidUse if that is not a multiple of the granularity (see
  // rounded_up), OutOfDeviceMemory or OutOfHostMemory, NotPermitted for fabric handles without an IMEX channel,
  // NotSupported for handles of Windows, and other Errors as the driver fails.
  [[nodiscard]] static PhysicalMemory create(const Driver& driver, const MemoryProperties& properties,
                                             std::size_t bytes);

  // The same, with the failure as a value.
  [[nodiscard]] static Result<PhysicalMemory> try_create(const Driver& driver, const MemoryProperties& properties,
                                                         std::size_t bytes);

  // Takes over one reference to a handle (CUmemGenericAllocationHandle) that other code got from cuMemCreate, an import
  // or cuMemRetainAllocationHandle, and now releases it instead of that code. `bytes` is the size that the memory was
  // created with, which no driver call tells. Properties are read from the handle, or those that are given. Throws
  // InvalidUse for a handle or a size of 0, and Error if the properties cannot be read; then the caller keeps the
  // reference. A handle that was released already can crash the driver.
  [[nodiscard]] static PhysicalMemory adopt(const Driver& driver, unsigned long long handle, std::size_t bytes);
  [[nodiscard]] static PhysicalMemory adopt(const Driver& driver, unsigned long long handle,
                                            const MemoryProperties& properties, std::size_t bytes);

  // Another owner of the memory behind a mapped address, whoever mapped it, with a reference of its own; size and
  // properties are as the driver tells them (cuMemRetainAllocationHandle). Throws InvalidUse where nothing is mapped or
  // the memory is not of cuMemCreate. Other threads must not unmap it meanwhile. Memory of a PhysicalSource is not
  // re-used after that.
  [[nodiscard]] static PhysicalMemory retain(const Driver& driver, DeviceAddress address);
  [[nodiscard]] static Result<PhysicalMemory> try_retain(const Driver& driver, DeviceAddress address);

  // The unit of sizes for these properties, in bytes (cuMemGetAllocationGranularity).
  [[nodiscard]] static std::size_t granularity(const Driver& driver, const MemoryProperties& properties,
                                               Granularity which = Granularity::minimum);

  // The least size that is a multiple of the granularity and no less than `bytes` and 1.
  [[nodiscard]] static std::size_t rounded_up(const Driver& driver, const MemoryProperties& properties,
                                              std::size_t bytes, Granularity which = Granularity::minimum);

  PhysicalMemory(PhysicalMemory&&) noexcept = default;
  PhysicalMemory& operator=(PhysicalMemory&&) noexcept = default;
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;
  ~PhysicalMemory() = default;

  [[nodiscard]] std::size_t size() const noexcept;  // bytes
  [[nodiscard]] const MemoryProperties& properties() const;
  [[nodiscard]] const Driver& driver() const;
  [[nodiscard]] unsigned long long handle() const noexcept;  // the driver's CUmemGenericAllocationHandle

  // Gives the reference to the caller, who releases it with cuMemRelease: the driver's handle. Mappings that are left
  // stay as they are, and unmap what they mapped. Afterwards the object is as moved from. Makes no driver call.
  [[nodiscard]] unsigned long long give_out();

  // Releases the handle now, which is legal while mappings are left: the driver keeps the memory until they are gone.
  // Afterwards the object is as moved from. Throws Error if the driver refuses, and then still owns the handle.
  void release();

 private:
  friend class Mapping;
  friend class PhysicalSource;
  friend class SharedPhysicalMemory;
  friend class range::RangeAddresses;
  struct State;
  explicit PhysicalMemory(std::shared_ptr<State> state) noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace cuvmm
