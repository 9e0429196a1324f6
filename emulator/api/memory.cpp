// Memory of cuMemAlloc, page-locked host memory, and how much there is.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

// What was made for a context which another thread ended meanwhile goes with it.
Answer EmulatedDriver::give_owner(const ActiveContext& context, Answer made) {
  if (!made.ok() || contexts_.execution_of(context.id) != nullptr) return made;
  release_belongings(*context.context, {context.id, context.execution, {}});
  return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
}

CUresult EmulatedDriver::cuMemGetInfo(size_t* free, size_t* total) {
  return with_context([&](const ActiveContext& context) -> Answer {
    machine_.memory_info(context.device, free, total);
    return {};
  });
}

CUresult EmulatedDriver::cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    return give_owner(context, machine_.allocate(pointer, bytes, context.device, context.id));
  });
}

// Memory is freed after all work of the context it belongs to, and all work of others that touches it, which is why
// code that frees under a running kernel gets away with it. No context need be current.
Answer EmulatedDriver::drain_users(std::uint64_t owner, std::uint64_t address, std::uint64_t bytes) {
  if (const auto context = contexts_.execution_of(owner))
    if (Answer finished = engine_.drain_context(context); !finished.ok()) return finished;
  drain_others(address, bytes);
  return {};
}

void EmulatedDriver::drain_others(std::uint64_t address, std::uint64_t bytes) {
  while (const auto user = engine_.first_unfinished_touching(address, bytes)) {
    const auto context = contexts_.execution_with(user->context);
    if (context == nullptr) break;                    // it has ended, and its work with it
    if (!engine_.drain_context(context).ok()) break;  // what has failed touches nothing any more
  }
}

// cuMemFree of memory of cuMemAlloc, and cuMemFreeAsync, which waits, too.
Answer EmulatedDriver::free_heap(CUdeviceptr pointer) {
  if (const auto allocation = machine_.find_heap_allocation(pointer); allocation && allocation->address == pointer)
    if (Answer finished = drain_users(allocation->owner, allocation->address, allocation->bytes); !finished.ok())
      return finished;
  return machine_.free(pointer);
}

CUresult EmulatedDriver::cuMemFree(CUdeviceptr pointer) {
  return initialised([&]() -> Answer {
    if (pointer == 0) return {};
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (const auto managed = machine_.find_managed(pointer)) {
      if (Answer finished = drain_users(managed->owner, managed->address, managed->bytes); !finished.ok())
        return finished;
      return machine_.free_host(reinterpret_cast<void*>(managed->address));
    }
    if (Answer freed; free_pooled(pointer, freed)) return freed;
    return free_heap(pointer);
  });
}

CUresult EmulatedDriver::cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  return initialised([&]() -> Answer {
    if (base == nullptr && size == nullptr)
      return {};  // nothing is asked for: neither address nor context is looked at
    ActiveContext context;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    const auto found = machine_.address_range(pointer, context.device);
    if (!found)
      return {CUDA_ERROR_NOT_FOUND, Rule::argument_valid,
              fmt::format("nothing that device {} can reach is allocated or mapped at {:#x}", context.device, pointer)};
    if (base != nullptr) *base = found->address;
    if (size != nullptr) *size = found->bytes;
    return {};
  });
}

CUresult EmulatedDriver::allocate_page_locked(void** pointer, std::size_t bytes, unsigned flags,
                                              const char* call) noexcept {
  const auto allocate = [&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    return give_owner(context, machine_.allocate_host(pointer, bytes, flags, context.device, context.id));
  };
  return with_context(allocate, call);
}

CUresult EmulatedDriver::cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return allocate_page_locked(pointer, bytes, flags);
}

CUresult EmulatedDriver::cuMemAllocHost(void** pointer, size_t bytes) {
  return allocate_page_locked(pointer, bytes, 0);
}

CUresult EmulatedDriver::cuMemFreeHost(void* pointer) {
  return initialised([&]() -> Answer {
    if (pointer == nullptr) return {};
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (const auto range = machine_.find_host_range(reinterpret_cast<std::uintptr_t>(pointer))) {
      if (range->managed)
        return {CUDA_ERROR_INVALID_VALUE, Rule::heap_pointer, fmt::format("{} is managed memory", pointer)};
      if (Answer finished = drain_users(range->owner, range->address, range->bytes); !finished.ok()) return finished;
    }
    return machine_.free_host(pointer);
  });
}

CUresult EmulatedDriver::cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    return give_owner(context, machine_.register_host(pointer, bytes, flags, context.device, context.id));
  });
}

CUresult EmulatedDriver::cuMemHostUnregister(void* pointer) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_unsafe_during_capture(); !refused.ok()) return refused;
    if (const auto range = machine_.find_host_range(reinterpret_cast<std::uintptr_t>(pointer)))
      if (Answer finished = drain_users(range->owner, range->address, range->bytes); !finished.ok()) return finished;
    return machine_.unregister_host(pointer);
  });
}

CUresult EmulatedDriver::cuMemHostGetDevicePointer(CUdeviceptr* device_pointer, void* pointer, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (device_pointer == nullptr || flags != 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("pdptr must not be null, flags must be 0 (are {:#x})", flags)};
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    if (!machine_.host_flags(address, context.device))
      return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration, fmt::format("{} is not page-locked", pointer)};
    *device_pointer = address;
    return {};
  });
}

CUresult EmulatedDriver::cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (flags == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pFlags must not be null"};
    const auto found = machine_.host_flags(reinterpret_cast<std::uintptr_t>(pointer), context.device);
    if (!found)
      return {CUDA_ERROR_INVALID_VALUE, Rule::host_registration, fmt::format("{} is not page-locked", pointer)};
    *flags = *found;
    return {};
  });
}

}  // namespace cuvmm::emulator::api
