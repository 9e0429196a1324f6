// Copies and fills: rights are checked when they are asked for, and again when they run.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

using execution::Operation;
using execution::OperationKind;
using execution::Outcome;
using model::Accessor;

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

bool EmulatedDriver::pageable(CUdeviceptr address) {
  return !machine_.is_device_address(address) && !machine_.find_host_range(address);
}

// Memory of a graph may be named before it is there, in captures and once a launch is to make it: whether it is is
// looked at when the work runs.
bool EmulatedDriver::is_promised(CUdeviceptr address, std::uint64_t bytes, bool captured) {
  return machine_.with_pools([&](model::StreamOrderedMemory& memory) {
    return captured ? memory.promised(address, bytes) : memory.awaited(address, bytes);
  });
}

// Of multicast addresses the driver knows too little to refuse a copy or a memset: the work faults.
bool EmulatedDriver::faults_later(const Answer& refused) const {
  return refused.rule == Rule::multicast_multimem_only &&
         !machine_.configuration().is_off(text(Rule::multicast_multimem_only).id);
}

Answer EmulatedDriver::check_copy(const Operand& destination, const Operand& source, std::size_t bytes, Access& to,
                                  Access& from) {
  Answer answer = machine_.access(destination.address, bytes, destination.who, true, destination.kind, to);
  if (!answer.ok()) return answer;
  return machine_.access(source.address, bytes, source.who, false, source.kind, from);
}

execution::Operation EmulatedDriver::copy_operation(const Operand& destination, const Operand& source,
                                                    std::size_t bytes, CUresult code) {
  Operation operation;
  operation.kind = OperationKind::copy;
  operation.description =
      fmt::format("copy of {} bytes from {:#x} to {:#x}", bytes, source.address, destination.address);
  operation.touches = {{destination.address, bytes, true}, {source.address, bytes, false}};
  operation.run = [this, destination, source, bytes, code] {
    Access to, from;
    if (Answer refused = check_copy(destination, source, bytes, to, from); !refused.ok())
      return Outcome::fault(faults_later(refused) ? CUDA_ERROR_ILLEGAL_ADDRESS : code, refused.detail);
    memory::copy(to.pieces(), from.pieces());
    const bool kept = machine_.still_valid(destination.address, bytes, destination.who, true, destination.kind, to) &&
                      machine_.still_valid(source.address, bytes, source.who, false, source.kind, from);
    if (!kept) return Outcome::fault(CUDA_ERROR_ILLEGAL_ADDRESS, "memory was unmapped while a copy used it");
    return Outcome::done();
  };
  return operation;
}

// What work that finds its memory gone ends in: copies to and from the host and work of graphs are done by the copy
// engines, which report otherwise than kernels do.
CUresult EmulatedDriver::fault_of_vanished_memory(bool by_copy_engine) {
  return by_copy_engine ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool EmulatedDriver::is_captured(const execution::StreamPointer& stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  (void)engine_.is_capturing(stream, status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Copies are made with the host's rights where the device has none: of mappings in every call, of a pool's memory if
// the call takes it as memory of the host's, or as either's.
void EmulatedDriver::use_host_rights(Operand& operand, std::size_t bytes, bool write) {
  const auto facts = machine_.pointer_facts(operand.address);
  if (facts && facts->imported_host_pool) return;
  if (facts && facts->is_pooled() && operand.kind != AddressKind::pageable) return;
  Access access;
  if (!machine_.access(operand.address, bytes, operand.who, write, operand.kind, access).ok() &&
      machine_.access(operand.address, bytes, Accessor::host(), write, operand.kind, access).ok())
    operand.who = Accessor::host();
}

// The driver looks at the beginnings alone, and copies nothing.
Answer EmulatedDriver::check_wrapped_copy(const Operand& destination, const Operand& source, std::size_t bytes) {
  const auto range = fmt::format("{} bytes from {:#x} to {:#x}", bytes, source.address, destination.address);
  if (!machine_.is_device_address(destination.address) || !machine_.is_device_address(source.address))
    return {CUDA_ERROR_INVALID_VALUE, Rule::range_fits, range};
  Access to, from;
  if (Answer refused = check_copy(destination, source, 1, to, from); !refused.ok()) return refused;
  return machine_.tolerated(Rule::range_fits, range);
}

// What touches memory of the process itself is finished when the call returns, unless that memory is page-locked.
Answer EmulatedDriver::copy(CUstream stream, Operand destination, Operand source, std::size_t bytes, CopyWait wait) {
  StreamEntry entry;
  if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
  if (bytes == 0) return {};
  const auto device = Accessor::device(entry.context->device);
  if (destination.who.is_host()) destination.who = device;
  if (source.who.is_host()) source.who = device;
  if (destination.address + bytes < destination.address || source.address + bytes < source.address)
    return check_wrapped_copy(destination, source, bytes);
  const bool captured = is_captured(entry.stream);
  if (Access to, from; !check_copy(destination, source, bytes, to, from).ok()) {
    use_host_rights(destination, bytes, true);
    use_host_rights(source, bytes, false);
    if (Answer refused = check_copy(destination, source, bytes, to, from);
        !refused.ok() && !is_promised(destination.address, bytes, captured) &&
        !is_promised(source.address, bytes, captured) && !faults_later(refused))
      return refused;
  }
  const bool waits = wait == CopyWait::host_side || (wait == CopyWait::if_pageable && !captured &&
                                                     (pageable(destination.address) || pageable(source.address)));
  const bool on_devices = machine_.is_device_address(destination.address) && machine_.is_device_address(source.address);
  Operation operation = copy_operation(destination, source, bytes, fault_of_vanished_memory(captured || !on_devices));
  return waits ? engine_.submit_and_wait(entry.stream, std::move(operation))
               : engine_.submit(entry.stream, std::move(operation));
}

CUresult EmulatedDriver::copy_in_context(Operand destination, Operand source, std::size_t bytes, CUstream stream,
                                         CopyWait wait, const char* call) noexcept {
  return initialised([&] { return copy(stream, destination, source, bytes, wait); }, call);
}

CUresult EmulatedDriver::cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const bool between_devices = machine_.is_device_address(destination) && machine_.is_device_address(source);
  return copy_in_context({destination, AddressKind::pageable}, {source, AddressKind::pageable}, bytes, nullptr,
                         between_devices ? CopyWait::device_side : CopyWait::host_side);
}

CUresult EmulatedDriver::cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_in_context({destination, AddressKind::pageable}, {source, AddressKind::pageable}, bytes, stream,
                         CopyWait::if_pageable);
}

CUresult EmulatedDriver::cuMemcpyHtoD(CUdeviceptr destination, const void* source, size_t bytes) {
  return copy_in_context({destination}, {address_of(source), AddressKind::pageable}, bytes, nullptr,
                         CopyWait::host_side);
}

CUresult EmulatedDriver::cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  return copy_in_context({address_of(destination), AddressKind::pageable}, {source}, bytes, nullptr,
                         CopyWait::host_side);
}

CUresult EmulatedDriver::cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return copy_in_context({destination}, {source}, bytes, nullptr, CopyWait::device_side);
}

CUresult EmulatedDriver::cuMemcpyHtoDAsync(CUdeviceptr destination, const void* source, size_t bytes, CUstream stream) {
  return copy_in_context({destination}, {address_of(source), AddressKind::pageable}, bytes, stream,
                         CopyWait::if_pageable);
}

CUresult EmulatedDriver::cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_in_context({address_of(destination), AddressKind::pageable}, {source}, bytes, stream,
                         CopyWait::if_pageable);
}

CUresult EmulatedDriver::cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_in_context({destination}, {source}, bytes, stream, CopyWait::device_side);
}

CUresult EmulatedDriver::cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                      CUcontext source_context, size_t bytes) {
  return copy_between_contexts(destination, destination_context, source, source_context, bytes, nullptr);
}

CUresult EmulatedDriver::cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                           CUcontext source_context, size_t bytes, CUstream stream) {
  return copy_between_contexts(destination, destination_context, source, source_context, bytes, stream);
}

CUresult EmulatedDriver::copy_between_contexts(CUdeviceptr destination, CUcontext destination_context,
                                               CUdeviceptr source, CUcontext source_context, std::size_t bytes,
                                               CUstream stream, const char* call) noexcept {
  const auto work = [&]() -> Answer {
    const auto find = [&](CUcontext handle) {
      return handle == nullptr ? contexts_.current() : contexts_.find(handle);
    };
    const Context* to = find(destination_context);
    const Context* from = find(source_context);
    if (to == nullptr || from == nullptr)
      return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_live,
              "dstContext and srcContext must be live contexts, or null"};
    StreamEntry entry;
    if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
    if (Answer refused = engine_.check_not_captured(entry.stream, "cuMemcpyPeerAsync"); !refused.ok()) return refused;
    return copy(stream, {destination, AddressKind::copy, Accessor::device(to->device)},
                {source, AddressKind::copy, Accessor::device(from->device)}, bytes, CopyWait::device_side);
  };
  return initialised(work, call);
}

Answer EmulatedDriver::fill(CUstream stream, CUdeviceptr destination, std::uint32_t pattern, std::size_t pattern_bytes,
                            std::size_t count) {
  StreamEntry entry;
  if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
  if (Answer refused = engine_.check_capture_of(entry.stream); !refused.ok()) return refused;
  if (count == 0) return {};
  if (destination % pattern_bytes != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("{:#x} is not a multiple of {}", destination, pattern_bytes)};
  const bool captured = is_captured(entry.stream);
  const bool wrapped = count > (~std::size_t{0} - destination) / pattern_bytes;
  const std::uint64_t bytes = wrapped ? pattern_bytes : count * pattern_bytes;
  const auto who = Accessor::device(entry.context->device);
  Access allowed;
  Answer refused = machine_.access(destination, bytes, who, true, AddressKind::kernel, allowed);
  if (!refused.ok() && !captured && !is_promised(destination, bytes, false) && !faults_later(refused)) return refused;
  if (wrapped)  // the driver looks at the beginning alone, and sets nothing
    return machine_.tolerated(Rule::range_fits,
                              fmt::format("{} values of {} bytes at {:#x}", count, pattern_bytes, destination));
  Operation operation;
  operation.kind = OperationKind::memory_set;
  operation.description = fmt::format("memset of {} bytes at {:#x}", bytes, destination);
  operation.touches.push_back({destination, bytes, true});
  operation.check = [this, who, destination, bytes]() -> Answer {
    if (is_promised(destination, bytes, true)) return {};
    Access target;
    return machine_.access(destination, bytes, who, true, AddressKind::kernel, target);
  };
  operation.run = [this, who, destination, bytes, pattern, pattern_bytes, code = fault_of_vanished_memory(captured)] {
    Access target;
    if (Answer gone = machine_.access(destination, bytes, who, true, AddressKind::kernel, target); !gone.ok())
      return Outcome::fault(faults_later(gone) ? CUDA_ERROR_ILLEGAL_ADDRESS : code, gone.detail);
    memory::fill(target.pieces(), pattern, pattern_bytes);
    if (!machine_.still_valid(destination, bytes, who, true, AddressKind::kernel, target))
      return Outcome::fault(CUDA_ERROR_ILLEGAL_ADDRESS, "memory was unmapped while a memset used it");
    return Outcome::done();
  };
  return engine_.submit(entry.stream, std::move(operation));
}

CUresult EmulatedDriver::fill_in_context(CUdeviceptr destination, std::uint32_t pattern, std::size_t pattern_bytes,
                                         std::size_t count, CUstream stream, const char* call) noexcept {
  return initialised([&] { return fill(stream, destination, pattern, pattern_bytes, count); }, call);
}

CUresult EmulatedDriver::cuMemsetD8(CUdeviceptr destination, unsigned char value, size_t count) {
  return fill_in_context(destination, value, 1, count, nullptr);
}

CUresult EmulatedDriver::cuMemsetD16(CUdeviceptr destination, unsigned short value, size_t count) {
  return fill_in_context(destination, value, 2, count, nullptr);
}

CUresult EmulatedDriver::cuMemsetD32(CUdeviceptr destination, unsigned int value, size_t count) {
  return fill_in_context(destination, value, 4, count, nullptr);
}

CUresult EmulatedDriver::cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t count, CUstream stream) {
  return fill_in_context(destination, value, 1, count, stream);
}

CUresult EmulatedDriver::cuMemsetD16Async(CUdeviceptr destination, unsigned short value, size_t count,
                                          CUstream stream) {
  return fill_in_context(destination, value, 2, count, stream);
}

CUresult EmulatedDriver::cuMemsetD32Async(CUdeviceptr destination, unsigned int value, size_t count, CUstream stream) {
  return fill_in_context(destination, value, 4, count, stream);
}

}  // namespace cuvmm::emulator::api
