#include "sleep/pinned_memory.hpp"

#include "clean_up.hpp"
#include "cuvmm/context.hpp"
#include "relaxed_capture_mode.hpp"
#include "report_exception.hpp"

namespace cuvmm::sleep {

using driver::EntryPoint;

Result<PinnedMemory> PinnedMemory::allocate(const Device& device, std::size_t bytes) {
  const RelaxedCaptureMode relaxed(device.driver().interface());
  const CurrentContext context(device);
  void* pointer = nullptr;
  auto allocated = driver::try_call<EntryPoint::cuMemHostAlloc>(device.driver().interface(), &pointer, bytes,
                                                                abi::CU_MEMHOSTALLOC_PORTABLE);
  if (!allocated) return allocated.failure();
  return PinnedMemory(device, {static_cast<std::byte*>(pointer), bytes});
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : device_(std::move(other.device_)), bytes_(std::exchange(other.bytes_, {})) {}

PinnedMemory::~PinnedMemory() {
  if (bytes_.data() == nullptr) return;
  try {
    const RelaxedCaptureMode relaxed(device_.driver().interface());
    const CurrentContext context(device_);
    clean_up<EntryPoint::cuMemFreeHost>(device_.driver().interface(), bytes_.data());
  } catch (...) {
    report_current_exception("cuMemFreeHost");
  }
}

}  // namespace cuvmm::sleep
