// Managed memory: ordinary memory of the process, which every device may touch as well.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

Answer Machine::allocate_managed(CUdeviceptr* pointer, std::uint64_t bytes, int device, std::uint64_t owner) {
  void* memory = nullptr;
  if (Answer answer = allocate_host(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE, device, owner); !answer.ok())
    return answer;
  const std::lock_guard lock(mutex_);
  HostRange& range = host_ranges_.at(reinterpret_cast<std::uintptr_t>(memory));
  range.managed = true;
  *pointer = range.address;
  return {};
}

std::optional<HostRange> Machine::find_managed(CUdeviceptr address) {
  const auto range = find_host_range(address);
  return range && range->managed && range->address == address ? range : std::nullopt;
}

CUresult EmulatedDriver::cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (pointer == nullptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
      return {
          CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
          fmt::format("dptr must not be null, bytesize not 0 (is {}), flags GLOBAL or HOST (are {:#x})", bytes, flags)};
    if (machine_.configuration().profile.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0)
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::argument_valid, "the device has no managed memory"};
    return give_owner(context, machine_.allocate_managed(pointer, bytes, context.device, context.id));
  });
}

}  // namespace cuvmm::emulator::api
