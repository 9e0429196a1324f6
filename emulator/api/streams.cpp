// Streams: the engine runs them; here they get handles.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

constexpr int lowest_priority = 0;
constexpr int highest_priority = -5;

template <class Value>
bool satisfied(Value now, Value wanted, unsigned condition) {
  using Signed = std::make_signed_t<Value>;
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(now - wanted) >= 0;  // as the driver: survives wrap-around
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:
      return static_cast<Value>(~(now | wanted)) != 0;
  }
}

// The value's place in the process; a value is aligned, so it lies in one piece.
template <class Value>
std::atomic_ref<Value> place_of(const Access& access) {
  const memory::Piece& piece = access.pieces().front();
  std::byte* place = piece.file == nullptr ? piece.host : piece.file->bytes(piece.offset, sizeof(Value)).data();
  return std::atomic_ref<Value>(*reinterpret_cast<Value*>(place));
}

}  // namespace

Answer EmulatedDriver::find_stream(CUstream handle, StreamEntry* found) {
  if (handle == nullptr || handle == legacy_stream() || handle == per_thread_stream()) {
    ActiveContext context;
    if (Answer refused = current_context(&context); !refused.ok()) return refused;
    found->context = context.context;
    found->stream = handle == per_thread_stream() ? engine_.per_thread_stream(context.execution)
                                                  : engine_.legacy_stream(context.execution);
    if (found->stream == nullptr)
      return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
    return {};
  }
  const auto entry = streams_.find(handle);
  if (entry == nullptr)
    return {CUDA_ERROR_INVALID_HANDLE, Rule::stream_live, fmt::format("{} is no stream", fmt::ptr(handle))};
  *found = *entry;
  return {};
}

// The same, which must not have failed: looked at before what a copy or memset touches.
Answer EmulatedDriver::find_working_stream(CUstream handle, StreamEntry* found) {
  if (Answer refused = find_stream(handle, found); !refused.ok()) return refused;
  return engine_.check_context(found->stream->context);
}

template <class Work>
CUresult EmulatedDriver::with_stream(CUstream handle, Work&& work, const char* call) noexcept {
  const auto found = [&]() -> Answer {
    StreamEntry entry;
    if (Answer refused = find_stream(handle, &entry); !refused.ok()) return refused;
    return work(entry);
  };
  return initialised(found, call);
}

CUresult EmulatedDriver::cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create_stream(stream, flags, lowest_priority);
}

CUresult EmulatedDriver::cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create_stream(stream, flags, priority);
}

CUresult EmulatedDriver::create_stream(CUstream* stream, unsigned flags, int priority, const char* call) noexcept {
  const auto create = [&](const ActiveContext& context) -> Answer {
    if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("phStream must not be null, flags must be known (are {:#x})", flags)};
    StreamEntry entry;
    entry.context = context.context;
    const int clamped = std::clamp(priority, highest_priority, lowest_priority);
    if (Answer refused = engine_.create_stream(context.execution, flags, clamped, entry.stream); !refused.ok())
      return refused;
    try {
      *stream = streams_.add(std::make_shared<StreamEntry>(entry));
    } catch (...) {
      (void)engine_.destroy_stream(entry.stream);
      throw;
    }
    return give_owner(context, {});
  };
  return with_context(create, call);
}

CUresult EmulatedDriver::cuStreamDestroy(CUstream stream) {
  return initialised_else(CUDA_ERROR_INVALID_HANDLE, [&]() -> Answer {
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    if (Answer refused = engine_.destroy_stream(entry.stream); !refused.ok()) return refused;
    (void)streams_.take(stream);
    forget_lost_graphs();
    return {};
  });
}

CUresult EmulatedDriver::cuStreamSynchronize(CUstream stream) {
  return with_stream(stream, [&](const StreamEntry& entry) {
    Answer finished = engine_.synchronize_stream(entry.stream);
    if (entry.stream->legacy()) return synchronized(std::move(finished));  // it waits for other streams, too
    if (finished.ok())
      machine_.with_pools([&](model::StreamOrderedMemory& memory) { memory.host_synchronized_with(entry.stream->id); });
    return finished;
  });
}

CUresult EmulatedDriver::cuStreamQuery(CUstream stream) {
  return with_stream(stream, [&](const StreamEntry& entry) { return engine_.query_stream(entry.stream); });
}

CUresult EmulatedDriver::cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    if (context == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pctx must not be null"};
    if (Answer refused = engine_.check_context(entry.stream->context); !refused.ok()) return refused;
    *context = entry.context->handle();
    return {};
  });
}

CUresult EmulatedDriver::cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    if (flags == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "flags must not be null"};
    return engine_.stream_flags(entry.stream, *flags);
  });
}

CUresult EmulatedDriver::cuStreamGetPriority(CUstream stream, int* priority) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    if (priority == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "priority must not be null"};
    if (Answer refused = engine_.check_context(entry.stream->context); !refused.ok()) return refused;
    if (Answer refused = engine_.check_capture_of(entry.stream); !refused.ok()) return refused;
    *priority = entry.stream->priority;
    return {};
  });
}

CUresult EmulatedDriver::cuStreamGetId(CUstream stream, unsigned long long* id) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    if (id == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "streamId must not be null"};
    unsigned flags = 0;  // asking for the number is as asking for the flags, to a capture
    if (Answer refused = engine_.stream_flags(entry.stream, flags); !refused.ok()) return refused;
    *id = entry.stream->id;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
  return with_context([&](const ActiveContext&) -> Answer {
    if (least_priority != nullptr) *least_priority = lowest_priority;
    if (greatest_priority != nullptr) *greatest_priority = highest_priority;
    return {};
  });
}

CUresult EmulatedDriver::cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    const auto found = events_.find(event);
    Answer waits = engine_.wait_event(entry.stream, found, flags);
    if (waits.ok() && !is_captured(entry.stream))
      machine_.with_pools([&](model::StreamOrderedMemory& memory) { memory.note_wait(entry.stream->id, found->id); });
    return waits;
  });
}

CUresult EmulatedDriver::cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user_data) {
  return with_stream(stream, [&](const StreamEntry& entry) -> Answer {
    if (function == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "fn must not be null"};
    return engine_.submit(entry.stream, {execution::OperationKind::host_function,
                                         "host function",
                                         {},
                                         [function, user_data] {
                                           function(user_data);
                                           return execution::Outcome::done();
                                         },
                                         {}});
  });
}

// The driver accepts memory that it may only read.
Answer EmulatedDriver::check_writable(CUdeviceptr address, std::size_t bytes, model::Accessor who) {
  Access access;
  if (machine_.access(address, bytes, who, true, AddressKind::kernel, access).ok()) return {};
  return machine_.tolerated(Rule::write_value_writable,
                            fmt::format("device {} may only read {:#x} + {}", who.ordinal(), address, bytes));
}

template <class Value>
Answer EmulatedDriver::submit_value_operation(const StreamEntry& entry, CUdeviceptr address, Value value, bool write,
                                              unsigned condition) {
  if (address % sizeof(Value) != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("address {:#x} is not a multiple of {}", address, sizeof(Value))};
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an entry that is found has a context
  const auto who = model::Accessor::device(entry.context->device);
  Access allowed;
  if (Answer refused = machine_.access(address, sizeof(Value), who, false, AddressKind::kernel, allowed); !refused.ok())
    return refused;
  if (write)
    if (Answer read_only = check_writable(address, sizeof(Value), who); !read_only.ok()) return read_only;
  const auto kind = write ? execution::OperationKind::write_value : execution::OperationKind::wait_value;
  auto run = [this, who, address, value, write, condition] {
    Access access;
    if (Answer refused = machine_.access(address, sizeof(Value), who, false, AddressKind::kernel, access);
        !refused.ok())
      return execution::Outcome::fault(CUDA_ERROR_LAUNCH_FAILED, refused.detail);
    if (write) {
      if (Answer refused = machine_.access(address, sizeof(Value), who, true, AddressKind::kernel, access);
          !refused.ok())
        return execution::Outcome::fault(CUDA_ERROR_LAUNCH_FAILED, refused.detail);
      place_of<Value>(access).store(value, std::memory_order_release);
      return execution::Outcome::done();
    }
    const Value now = place_of<Value>(access).load(std::memory_order_acquire);
    return satisfied(now, value, condition) ? execution::Outcome::done() : execution::Outcome::again();
  };
  return engine_.submit(entry.stream,
                        {kind,
                         fmt::format("{} of {} bytes at {:#x}", execution::name_of(kind), sizeof(Value), address),
                         {{address, sizeof(Value), write}},
                         std::move(run),
                         {}});
}

template <class Value>
CUresult EmulatedDriver::write_value(CUstream stream, CUdeviceptr address, Value value, unsigned flags,
                                     const char* call) noexcept {
  const auto write = [&](const StreamEntry& entry) -> Answer {
    if (flags != CU_STREAM_WRITE_VALUE_DEFAULT)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    return submit_value_operation(entry, address, value, true, 0);
  };
  return with_stream(stream, write, call);
}

template <class Value>
CUresult EmulatedDriver::wait_value(CUstream stream, CUdeviceptr address, Value value, unsigned flags,
                                    const char* call) noexcept {
  const auto wait = [&](const StreamEntry& entry) -> Answer {
    const unsigned condition = flags & ~static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH);
    if (condition > CU_STREAM_WAIT_VALUE_NOR)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    const Profile& profile = machine_.configuration().profile;
    if (flags != condition && profile.attribute(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES) == 0)
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::argument_valid, "the device cannot flush remote writes"};
    return submit_value_operation(entry, address, value, false, condition);
  };
  return with_stream(stream, wait, call);
}

CUresult EmulatedDriver::cuStreamWriteValue32(CUstream stream, CUdeviceptr address, unsigned int value,
                                              unsigned int flags) {
  return write_value(stream, address, value, flags);
}

CUresult EmulatedDriver::cuStreamWriteValue64(CUstream stream, CUdeviceptr address, unsigned long long value,
                                              unsigned int flags) {
  return write_value(stream, address, value, flags);
}

CUresult EmulatedDriver::cuStreamWaitValue32(CUstream stream, CUdeviceptr address, unsigned int value,
                                             unsigned int flags) {
  return wait_value(stream, address, value, flags);
}

CUresult EmulatedDriver::cuStreamWaitValue64(CUstream stream, CUdeviceptr address, unsigned long long value,
                                             unsigned int flags) {
  return wait_value(stream, address, value, flags);
}

}  // namespace cuvmm::emulator::api
