// Contexts: primary ones, created ones, and each thread's stack of current ones.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

Answer no_such_context(CUcontext context) {
  return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_live, fmt::format("{} is no live context", fmt::ptr(context))};
}

// Known flags, of those for scheduling at most one.
bool flags_valid(unsigned flags) {
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 && (scheduling & (scheduling - 1)) == 0;
}

execution::FaultGroup fault_group(int device) {
  return {static_cast<std::uint64_t>(device) + 1};
}

}  // namespace

// Contexts of one device fail together: what a fault leaves behind is the device's state, not one context's. Called
// under the table's lock.
void EmulatedDriver::start(Context& context) {
  contexts_.begin(context, engine_.create_context(fault_group(context.device)));
}

Answer EmulatedDriver::check_device_whole(CUdevice device) {
  return engine_.check_group(fault_group(device));
}

void EmulatedDriver::end(Context& context, const std::optional<ContextLife>& life) {
  if (!life) return;
  (void)engine_.destroy_context(life->execution);
  // As cuMemFreeHost does: other contexts may use the page-locked memory that goes with this one.
  for (auto range = machine_.next_host_range_of(life->id, 0); range;
       range = machine_.next_host_range_of(life->id, range->address))
    drain_others_without_fail(range->address, range->bytes);
  for (const int peer : life->peers) machine_.set_peer_enabled(context.device, peer, false);
  release_belongings(context, *life);
}

// Of a context that has ended already: where there is no memory to wait with, it waits for some.
void EmulatedDriver::drain_others_without_fail(std::uint64_t address, std::uint64_t bytes) {
  constexpr int most_tries = 1000;
  for (int tries = 0; tries < most_tries; ++tries) {
    try {
      return drain_others(address, bytes);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void EmulatedDriver::release_belongings(Context& context, const ContextLife& life) {
  modules_.take_all_if([&](const Module& module) { return module.context == life.id; });
  forget_functions();
  forget_handles(context, life.execution);
  forget_lost_graphs();
  machine_.release_all_of(life.id);
}

// Handles of the ended context's streams and events go on answering that it was destroyed; the objects go.
void EmulatedDriver::forget_handles(Context& context, const execution::ContextPointer& ended) {
  try {
    const auto stream = std::make_shared<execution::Stream>(0, ended, execution::StreamRole::created, 0U, 0);
    streams_.replace_all_if([&](const StreamEntry& entry) { return entry.stream->context == ended; },
                            std::make_shared<StreamEntry>(StreamEntry{stream, &context}));
    events_.replace_all_if([&](const execution::Event& event) { return event.context == ended; },
                           std::make_shared<execution::Event>(0, ended, 0U));
  } catch (const std::bad_alloc&) {
    return;  // they stay, then, and answer the same
  }
}

Answer EmulatedDriver::living_context(ActiveContext* context) {
  Context* current = contexts_.current();
  if (current == nullptr)
    return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current, "no context is current to this thread"};
  auto active = contexts_.active(*current);
  if (!active) return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
  *context = *std::move(active);
  return {};
}

Answer EmulatedDriver::current_context(ActiveContext* context) {
  if (Answer refused = living_context(context); !refused.ok()) return refused;
  return engine_.check_context(context->execution);
}

Answer EmulatedDriver::check_not_failed() {
  ActiveContext context;
  Answer refused = current_context(&context);
  return !refused.ok() && refused.rule == Rule::context_healthy ? refused : Answer();
}

Answer EmulatedDriver::retain_primary(CUcontext* context, CUdevice device) {
  Context& primary = contexts_.primary(device);
  return contexts_.locked([&]() -> Answer {
    if (!primary.life) {
      if (Answer refused = check_device_whole(device); !refused.ok()) return refused;
      start(primary);
    }
    ++primary.references;
    *context = primary.handle();
    return {};
  });
}

CUresult EmulatedDriver::cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return initialised([&]() -> Answer {
    if (context == nullptr) return null_output("pctx");
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    return retain_primary(context, device);
  });
}

CUresult EmulatedDriver::cuDevicePrimaryCtxRelease(CUdevice device) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    Context& primary = contexts_.primary(device);
    std::optional<ContextLife> ended;
    const bool held = contexts_.locked([&] {
      if (primary.references == 0) return false;
      if (--primary.references == 0) ended = std::exchange(primary.life, std::nullopt);
      return true;
    });
    if (!held) return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_live, "the primary context is not retained"};
    end(primary, ended);
    return {};
  });
}

// The context ends, while those who retained it still have to release it.
CUresult EmulatedDriver::cuDevicePrimaryCtxReset(CUdevice device) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    Context& primary = contexts_.primary(device);
    const auto ended = contexts_.locked([&] { return std::exchange(primary.life, std::nullopt); });
    end(primary, ended);
    return {};
  });
}

CUresult EmulatedDriver::cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return initialised([&]() -> Answer {
    if (flags == nullptr || active == nullptr) return null_output("flags and active");
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    Context& primary = contexts_.primary(device);
    contexts_.locked([&] {
      *flags = primary.flags;
      *active = primary.life ? 1 : 0;
    });
    return {};
  });
}

CUresult EmulatedDriver::cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (!flags_valid(flags) || (flags & CU_CTX_MAP_HOST) != 0)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    Context& primary = contexts_.primary(device);
    contexts_.locked([&] { primary.flags = flags; });
    return {};
  });
}

CUresult EmulatedDriver::cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return initialised([&]() -> Answer {
    if (context == nullptr) return null_output("pctx");
    if (!flags_valid(flags))
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (Answer refused = check_device_whole(device); !refused.ok()) return refused;
    auto& stack = contexts_.stack();
    Context& created = contexts_.add(device);
    try {
      stack.push_back(&created);
      contexts_.locked([&] {
        created.flags = flags;
        start(created);
      });
    } catch (...) {
      if (!stack.empty() && stack.back() == &created) stack.pop_back();
      contexts_.remove(created);
      throw;
    }
    *context = created.handle();
    return {};
  });
}

CUresult EmulatedDriver::cuCtxDestroy(CUcontext handle) {
  return answer([&]() -> Answer {
    // A null handle is refused even before cuInit.
    if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::context_live, "ctx must not be null"};
    if (Answer refused = check_initialised(); !refused.ok()) return refused;
    Context* context = contexts_.find(handle);
    if (context == nullptr) return no_such_context(handle);
    if (context->primary)
      return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_live, "a primary context is released, not destroyed"};
    const auto ended = contexts_.locked([&] { return std::exchange(context->life, std::nullopt); });
    if (!ended) return no_such_context(handle);  // another thread was faster
    auto& stack = contexts_.stack();
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    end(*context, ended);
    return {};
  });
}

// The driver looks at a handle only when the context is needed, so that dead ones and garbage can be made current.
Answer EmulatedDriver::find_to_make_current(CUcontext handle, Context** context) {
  *context = contexts_.find(handle);
  if (*context != nullptr) return {};
  Answer refused = machine_.tolerated(Rule::context_live, fmt::format("{} is no live context", fmt::ptr(handle)));
  if (refused.ok())
    *context = &contexts_.find_or_adopt(handle);
  else
    refused.code = CUDA_ERROR_INVALID_CONTEXT;
  return refused;
}

CUresult EmulatedDriver::cuCtxPushCurrent(CUcontext handle) {
  return initialised([&]() -> Answer {
    if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::context_live, "ctx must not be null"};
    Context* context = nullptr;
    if (Answer refused = find_to_make_current(handle, &context); !refused.ok()) return refused;
    contexts_.stack().push_back(context);
    return {};
  });
}

CUresult EmulatedDriver::cuCtxPopCurrent(CUcontext* context) {
  return initialised([&]() -> Answer {
    auto& stack = contexts_.stack();
    if (stack.empty()) return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current, "the stack of contexts is empty"};
    if (context != nullptr) *context = stack.back()->handle();
    stack.pop_back();
    return {};
  });
}

CUresult EmulatedDriver::cuCtxSetCurrent(CUcontext handle) {
  return initialised([&]() -> Answer {
    auto& stack = contexts_.stack();
    Context* context = nullptr;
    if (handle != nullptr)
      if (Answer refused = find_to_make_current(handle, &context); !refused.ok()) return refused;
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetCurrent(CUcontext* context) {
  return initialised([&]() -> Answer {
    if (context == nullptr) return null_output("pctx");
    Context* current = contexts_.current();
    *context = current == nullptr ? nullptr : current->handle();
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetDevice(CUdevice* device) {
  return initialised([&]() -> Answer {
    ActiveContext context;
    if (Answer refused = living_context(&context); !refused.ok()) return refused;
    if (device == nullptr) return null_output("device");
    *device = context.device;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetFlags(unsigned int* flags) {
  return initialised([&]() -> Answer {
    ActiveContext context;
    if (Answer refused = living_context(&context); !refused.ok()) return refused;
    if (flags == nullptr) return null_output("flags");
    // A primary context always maps host memory, which its owner cannot ask for.
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a context that is found lives
    *flags = context.context->primary ? context.flags | CU_CTX_MAP_HOST : context.flags;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return initialised([&]() -> Answer {
    if (id == nullptr) return null_output("ctxId");
    Context* context = handle == nullptr ? contexts_.current() : contexts_.find(handle);
    if (context == nullptr && handle == nullptr)
      return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current, "no context is current to this thread"};
    const std::uint64_t life = context == nullptr ? 0 : contexts_.life_of(*context);
    if (life == 0) return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the context was destroyed"};
    *id = life;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  return initialised([&]() -> Answer {
    if (version == nullptr) return null_output("version");
    if (handle == nullptr && contexts_.current() == nullptr)
      return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current, "no context is current to this thread"};
    if (handle != nullptr && contexts_.find(handle) == nullptr) return no_such_context(handle);
    *version = 3020;  // of all contexts that are made by today's cuCtxCreate
    return {};
  });
}

CUresult EmulatedDriver::cuCtxSynchronize() {
  return with_context(
      [&](const ActiveContext& context) { return synchronized(engine_.synchronize_context(context.execution)); });
}

CUresult EmulatedDriver::cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
    if (contexts_.is_dead(peer_handle))
      return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the peer's context was destroyed"};
    Context* peer = contexts_.find(peer_handle);
    if (peer == nullptr) return no_such_context(peer_handle);
    if (peer->device == context.device)
      return {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, Rule::access_peer, "a device is not its own peer"};
    if (!machine_.configuration().can_access_peer(context.device, peer->device))
      return {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, Rule::access_peer,
              fmt::format("device {} cannot reach device {}", context.device, peer->device)};
    // Together under the lock, so that the end of the context takes back all that was enabled.
    return contexts_.locked([&]() -> Answer {
      auto& life = context.context->life;
      if (!life || life->id != context.id)
        return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
      if (!life->peers.insert(peer->device).second)
        return {CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, Rule::argument_valid, "it was enabled before"};
      try {
        machine_.set_peer_enabled(context.device, peer->device, true);
      } catch (...) {
        life->peers.erase(peer->device);
        throw;
      }
      return {};
    });
  });
}

CUresult EmulatedDriver::cuCtxDisablePeerAccess(CUcontext peer_handle) {
  return with_context([&](const ActiveContext& context) -> Answer {
    Context* peer = contexts_.find(peer_handle);
    if (peer == nullptr) return no_such_context(peer_handle);
    return contexts_.locked([&]() -> Answer {
      auto& life = context.context->life;
      if (!life || life->id != context.id || life->peers.erase(peer->device) == 0)
        return {CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, Rule::argument_valid, "it is not enabled"};
      machine_.set_peer_enabled(context.device, peer->device, false);
      return {};
    });
  });
}

}  // namespace cuvmm::emulator::api
