// Contexts: primary ones, created ones, and each thread's stack of current ones.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

Answer null_output(const char* name) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, fmt::format("{} must not be null", name)};
}

Answer no_such_context(CUcontext context) {
  return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_live, fmt::format("{} is no live context", fmt::ptr(context))};
}

bool flags_known(unsigned flags) {
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0;
}

}  // namespace

// Contexts of one device fail together: what a fault leaves behind is the device's state, not one context's. Called
// under the table's lock.
void EmulatedDriver::start(Context& context) {
  contexts_.begin(context,
                  engine_.create_context(execution::FaultGroup{static_cast<std::uint64_t>(context.device) + 1}));
}

void EmulatedDriver::end(const Context& context, const std::optional<ContextLife>& life) {
  if (!life) return;
  (void)engine_.destroy_context(life->execution);
  for (const int peer : life->peers) machine_.set_peer_enabled(context.device, peer, false);
  release_belongings(life->id);
}

void EmulatedDriver::release_belongings(std::uint64_t life) {
  modules_.take_all_if([&](const Module& module) { return module.context == life; });
  forget_functions();
  machine_.release_all_of(life);
}

Answer EmulatedDriver::check_still_alive(const ActiveContext& context) {
  if (contexts_.still_alive(context)) return {};
  release_belongings(context.id);
  return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
}

Answer EmulatedDriver::executed(const execution::Answer& answer) {
  if (answer.ok()) return {};
  return {answer.code, Rule::execution, answer.rule};
}

Answer EmulatedDriver::current_context(ActiveContext* context) {
  Context* current = contexts_.current();
  if (current == nullptr)
    return {CUDA_ERROR_INVALID_CONTEXT, Rule::context_current, "no context is current to this thread"};
  auto active = contexts_.active(*current);
  if (!active) return {CUDA_ERROR_CONTEXT_IS_DESTROYED, Rule::context_live, "the current context was destroyed"};
  if (execution::Answer state = engine_.check_context(active->execution); !state.ok())
    return {state.code, Rule::context_healthy, state.rule};
  *context = *std::move(active);
  return {};
}

Answer EmulatedDriver::retain_primary(CUcontext* context, CUdevice device) {
  Context& primary = contexts_.primary(device);
  contexts_.locked([&] {
    if (!primary.life) start(primary);
    ++primary.references;
  });
  *context = primary.handle();
  return {};
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

CUresult EmulatedDriver::cuDevicePrimaryCtxReset(CUdevice device) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    Context& primary = contexts_.primary(device);
    const auto ended = contexts_.locked([&] {
      std::optional<ContextLife> life = primary.life;
      if (life) start(primary);
      return life;
    });
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
    if (!flags_known(flags))
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    Context& primary = contexts_.primary(device);
    contexts_.locked([&] { primary.flags = flags; });
    return {};
  });
}

CUresult EmulatedDriver::cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return initialised([&]() -> Answer {
    if (context == nullptr) return null_output("pctx");
    if (!flags_known(flags))
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    Context& created = contexts_.add(device);
    auto& stack = contexts_.stack();
    stack.push_back(&created);
    try {
      contexts_.locked([&] {
        created.flags = flags;
        start(created);
      });
    } catch (...) {
      stack.pop_back();
      throw;
    }
    *context = created.handle();
    return {};
  });
}

CUresult EmulatedDriver::cuCtxDestroy(CUcontext handle) {
  return initialised([&]() -> Answer {
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

CUresult EmulatedDriver::cuCtxPushCurrent(CUcontext handle) {
  return initialised([&]() -> Answer {
    Context* context = contexts_.find(handle);
    if (context == nullptr) return no_such_context(handle);
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
    Context* context = handle == nullptr ? nullptr : contexts_.find(handle);
    if (handle != nullptr && context == nullptr) return no_such_context(handle);
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
  return with_context([&](const ActiveContext& context) -> Answer {
    if (device == nullptr) return null_output("device");
    *device = context.device;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxGetFlags(unsigned int* flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (flags == nullptr) return null_output("flags");
    *flags = context.flags;
    return {};
  });
}

CUresult EmulatedDriver::cuCtxSynchronize() {
  return with_context(
      [&](const ActiveContext& context) { return executed(engine_.synchronize_context(context.execution)); });
}

CUresult EmulatedDriver::cuCtxEnablePeerAccess(CUcontext peer_handle, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
    Context* peer = contexts_.find(peer_handle);
    if (peer == nullptr || peer->device == context.device) return no_such_context(peer_handle);
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
      machine_.set_peer_enabled(context.device, peer->device, true);
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
