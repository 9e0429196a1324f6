// The surroundings of one conformance case: the driver under test, and the steps that many cases begin with.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "conformance/cases/answer.hpp"
#include "driver/interface.hpp"

namespace cuvmm::conformance {

using namespace abi;

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;
inline constexpr std::size_t gibibyte = std::size_t{1} << 30;
inline constexpr std::size_t granule = 2 * mebibyte;  // the allocation granularity of the recorded machine

// An address where nothing is reserved.
inline constexpr CUdeviceptr nowhere = 0x5000'0000'0000;

using DriverFactory = std::function<std::shared_ptr<driver::Interface>()>;

// How far things have come when a case begins.
enum class Start {
  nothing,      // no driver is made: the case makes it itself, in the processes it wants
  loaded,       // the driver is made, cuInit was not called
  initialized,  // cuInit was called, no context is current
  context,      // the primary context of device 0 is current
};

// Addresses travel as numbers in the driver's calls and as pointers in C++.
[[nodiscard]] inline void* as_pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}
[[nodiscard]] inline CUdeviceptr as_address(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// A POSIX descriptor in the form in which cuMemImportFromShareableHandle takes it.
[[nodiscard]] inline void* as_os_handle(int descriptor) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
}

// Properties of pinned memory, zero but for what is named.
[[nodiscard]] CUmemAllocationProp device_memory(int device = 0, int handle_types = 0);
[[nodiscard]] CUmemAllocationProp host_memory(CUmemLocationType type, int handle_types = 0);
[[nodiscard]] CUmemAllocationProp exportable();

[[nodiscard]] CUmemLocation location(int id, int type = CU_MEM_LOCATION_TYPE_DEVICE);
[[nodiscard]] CUmemAccessDesc access_of(int id, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                        int type = CU_MEM_LOCATION_TYPE_DEVICE);

struct Exported {
  CUmemGenericAllocationHandle handle = 0;
  int descriptor = -1;
};

// One case's view of the driver under test. All calls go through `->`.
//
// The set-up steps below note a failure; the notes come before the case's answer, so that a case whose beginning
// failed cannot be mistaken for one that was answered.
class Environment {
 public:
  explicit Environment(DriverFactory make_driver);

  // Goes as far as `start` says. Returns the answer of the case if the driver cannot be brought there.
  [[nodiscard]] std::optional<std::string> begin(Start start);

  // Another environment over the same kind of driver, not begun: for a second process of the same case.
  [[nodiscard]] Environment another() const { return Environment{make_driver_}; }

  [[nodiscard]] driver::Interface* operator->() const noexcept { return driver_.get(); }
  [[nodiscard]] driver::Interface& driver() const noexcept { return *driver_; }
  [[nodiscard]] const std::shared_ptr<driver::Interface>& shared_driver() const noexcept { return driver_; }
  [[nodiscard]] int device_count() const noexcept { return device_count_; }
  [[nodiscard]] CUcontext context() const noexcept { return context_; }
  [[nodiscard]] const std::string& notes() const noexcept { return notes_; }

  // Notes "[setup STEP RESULT]" unless `result` is success.
  void expect(const char* step, CUresult result);

  // Physical memory, addresses, mappings, rights.
  [[nodiscard]] CUresult try_create(std::size_t size, const CUmemAllocationProp& properties);
  CUmemGenericAllocationHandle create(std::size_t size, const CUmemAllocationProp& properties = device_memory());
  CUdeviceptr reserve(std::size_t size, CUdeviceptr hint = 0);
  void map(CUdeviceptr address, std::size_t size, CUmemGenericAllocationHandle handle);
  void grant(CUdeviceptr address, std::size_t size, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, int device = 0);
  void unmap(CUdeviceptr address, std::size_t size);
  Exported export_new(std::size_t size = granule);
  [[nodiscard]] CUresult import(int descriptor, CUmemGenericAllocationHandle& handle,
                                int type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

  // A new reservation with new memory mapped at `address`, without access.
  void map_new(CUdeviceptr address, std::size_t size, const CUmemAllocationProp& properties = device_memory());
  // A reservation of exactly `size`, wholly mapped to one allocation, granted to device 0 unless `flags` is 0.
  CUdeviceptr mapped(std::size_t size = granule, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                     const CUmemAllocationProp& properties = device_memory());
  // The answer of cuMemGetAccess: "OK/3".
  [[nodiscard]] std::string access(CUdeviceptr address, int id = 0, int type = CU_MEM_LOCATION_TYPE_DEVICE);

  // Ordinary memory.
  CUdeviceptr allocate(std::size_t size = mebibyte);
  void* allocate_host(std::size_t size = mebibyte, unsigned flags = 0);
  void write_word(CUdeviceptr address, unsigned value);
  [[nodiscard]] unsigned read_word(CUdeviceptr address);

  // Contexts, streams, events.
  CUcontext primary(int device);
  CUcontext new_context(int device = 0, unsigned flags = 0);  // made current, as cuCtxCreate does
  void make_current(CUcontext context);
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  CUevent event(unsigned flags = CU_EVENT_DISABLE_TIMING);

 private:
  DriverFactory make_driver_;
  std::shared_ptr<driver::Interface> driver_;
  int device_count_ = 0;
  CUcontext context_ = nullptr;
  std::string notes_;
};

}  // namespace cuvmm::conformance
