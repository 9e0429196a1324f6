// What a driver answers after a kernel broke its context, and what heals it.
#include <algorithm>
#include <atomic>
#include <ctime>
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/entry_point_calls.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

using driver::EntryPointGroup;

// Breaks the current context by a store through a read-only grant. Returns what the wait for it answered.
CUresult break_context(Environment& cuda) {
  const Kernels kernels{cuda};
  cuda.expect("launch", kernels.store(cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ), 1));
  return cuda->cuCtxSynchronize();
}

// Calls that change what later ones are asked about have cases of their own.
bool changes_contexts(driver::EntryPoint entry_point) {
  using enum driver::EntryPoint;
  switch (entry_point) {
    case cuDevicePrimaryCtxRetain:
    case cuDevicePrimaryCtxRelease:
    case cuDevicePrimaryCtxReset:
    case cuDevicePrimaryCtxSetFlags:
    case cuCtxCreate:
    case cuCtxDestroy:
    case cuCtxPushCurrent:
    case cuCtxPopCurrent:
    case cuCtxSetCurrent:
      return true;
    default:
      return false;
  }
}

// Calls after which the objects of others are gone.
bool gives_back(driver::EntryPoint entry_point) {
  using enum driver::EntryPoint;
  switch (entry_point) {
    case cuMemFree:
    case cuMemFreeHost:
    case cuMemHostUnregister:
    case cuMemRelease:
    case cuMemAddressFree:
    case cuMemUnmap:
    case cuStreamDestroy:
    case cuEventDestroy:
    case cuGraphExecDestroy:
    case cuGraphDestroy:
    case cuModuleUnload:
    case cuMemPoolDestroy:
    case cuMemFreeAsync:
    case cuUserObjectRelease:
    case cuGraphReleaseUserObject:
      return true;
    default:
      return false;
  }
}

using Calls = std::vector<EntryPointCall>;

Calls calls_that_keep(EntryPointGroup group) {
  Calls calls;
  for (const EntryPointCall& each : first_entry_point_calls())
    if (driver::info(each.entry_point).group == group && !changes_contexts(each.entry_point) &&
        !gives_back(each.entry_point))
      calls.push_back(each);
  return calls;
}

Calls calls_that_give_back() {
  Calls calls;
  for (const EntryPointCall& each : first_entry_point_calls())
    if (gives_back(each.entry_point)) calls.push_back(each);
  return calls;
}

// Those that keep come before those that give back.
Calls further_calls() {
  Calls calls = further_entry_point_calls();
  std::stable_partition(calls.begin(), calls.end(),
                        [](const EntryPointCall& each) { return !gives_back(each.entry_point); });
  return calls;
}

// "broke=ILLEGAL_ADDRESS cuMemAlloc=... ..."
std::string answers_after_breaking(Environment& cuda, const Calls& calls) {
  Objects objects = make_objects(cuda);
  std::string answer = "broke=" + result_name(break_context(cuda));
  for (const EntryPointCall& each : calls)
    answer += " " + std::string{driver::name(each.entry_point)} + "=" + result_name(each.call(cuda.driver(), objects));
  return answer;
}

// A few calls a case, so that a crash in one hides few others.
void add_calls(Table& table, const std::string& name, const Calls& calls) {
  constexpr std::size_t at_a_time = 6;
  for (std::size_t first = 0; first < calls.size(); first += at_a_time) {
    const auto begin = calls.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = calls.begin() + static_cast<std::ptrdiff_t>(std::min(first + at_a_time, calls.size()));
    table.add(
        "sticky." + name + "_" + std::to_string(first / at_a_time + 1),
        [some = Calls(begin, end)](Environment& cuda) { return answers_after_breaking(cuda, some); }, needs_alone);
  }
}

void add_groups(Table& table) {
  const std::pair<const char*, EntryPointGroup> groups[] = {
      {"device", EntryPointGroup::device}, {"context", EntryPointGroup::context}, {"memory", EntryPointGroup::memory},
      {"vmm", EntryPointGroup::vmm},       {"sharing", EntryPointGroup::sharing}, {"copy", EntryPointGroup::copy},
      {"stream", EntryPointGroup::stream}, {"event", EntryPointGroup::event},     {"graph", EntryPointGroup::graph},
      {"kernel", EntryPointGroup::kernel}};
  for (const auto& [name, group] : groups) add_calls(table, name, calls_that_keep(group));
  add_calls(table, "give_back", calls_that_give_back());
  add_calls(table, "further", further_calls());
  add_calls(table, "pool_sharing", pool_sharing_calls());
}

CUresult try_allocate(Environment& cuda) {
  CUdeviceptr address = 0;
  return cuda->cuMemAlloc(&address, 4096);
}

void add(Table& table, const char* id, CaseFunction function) {
  table.add(id, std::move(function), needs_alone);
}

void add_healing(Table& table) {
  add(table, "sticky.again", [](Environment& cuda) {
    return spaces({break_context(cuda), cuda->cuCtxSynchronize(), try_allocate(cuda), try_allocate(cuda)});
  });
  add(table, "sticky.primary_reset", [](Environment& cuda) {
    return spaces({break_context(cuda), cuda->cuDevicePrimaryCtxReset(0), try_allocate(cuda)});
  });
  add(table, "sticky.primary_reset_and_retained", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    const CUresult reset = cuda->cuDevicePrimaryCtxReset(0);
    CUcontext again = nullptr;
    const CUresult retained = cuda->cuDevicePrimaryCtxRetain(&again, 0);
    return spaces({broke, reset, retained, cuda->cuCtxSetCurrent(again), try_allocate(cuda)});
  });
  add(table, "sticky.primary_released_and_retained", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    const CUresult released = cuda->cuDevicePrimaryCtxRelease(0);
    CUcontext again = nullptr;
    const CUresult retained = cuda->cuDevicePrimaryCtxRetain(&again, 0);
    return spaces({broke, released, retained, cuda->cuCtxSetCurrent(again), try_allocate(cuda)});
  });
  add(table, "sticky.primary_retained_again", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    CUcontext again = nullptr;
    return spaces({broke, cuda->cuDevicePrimaryCtxRetain(&again, 0)});
  });
  add(table, "sticky.new_context", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    CUcontext created = nullptr;
    const CUresult result = cuda->cuCtxCreate(&created, 0, 0);
    return spaces({broke, result, try_allocate(cuda), cuda->cuCtxSynchronize()});
  });
  add(table, "sticky.set_and_pop", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    CUcontext popped = nullptr;
    return spaces({broke, cuda->cuCtxSetCurrent(cuda.context()), cuda->cuCtxPushCurrent(cuda.context()),
                   cuda->cuCtxPopCurrent(&popped)});
  });
}

void add_created_contexts(Table& table) {
  add(table, "sticky.created_context_leaves_primary_whole", [](Environment& cuda) {
    const CUdeviceptr kept = cuda.mapped();
    cuda.new_context();
    const CUresult broke = break_context(cuda);
    cuda.make_current(cuda.context());
    return spaces({broke, try_allocate(cuda), cuda->cuMemsetD8(kept, 1, 64), cuda->cuCtxSynchronize()});
  });
  add(table, "sticky.created_context_destroyed", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUresult broke = break_context(cuda);
    const CUresult destroyed = cuda->cuCtxDestroy(created);
    cuda.make_current(cuda.context());
    return spaces({broke, destroyed, try_allocate(cuda), cuda->cuCtxSynchronize()});
  });
  add(table, "sticky.memory_seen_from_whole_context", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 42);
    const CUresult broke = break_context(cuda);
    CUcontext created = nullptr;
    const CUresult result = cuda->cuCtxCreate(&created, 0, 0);
    unsigned word = 0;
    const CUresult read = cuda->cuMemcpyDtoH(&word, address, 4);
    return spaces({broke, result, slashes({read, word})});
  });
}

void add_memory_after(Table& table) {
  add(table, "sticky.vmm_life_cycle", [](Environment& cuda) {
    const CUresult broke = break_context(cuda);
    const CUmemAllocationProp properties = device_memory();
    const CUmemAccessDesc access = access_of(0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    const CUresult created = cuda->cuMemCreate(&handle, granule, &properties, 0);
    const CUresult reserved = cuda->cuMemAddressReserve(&address, granule, 0, 0, 0);
    if (created != CUDA_SUCCESS || reserved != CUDA_SUCCESS) return spaces({broke, created, reserved});
    return spaces({broke, created, reserved, cuda->cuMemMap(address, granule, 0, handle, 0),
                   cuda->cuMemSetAccess(address, granule, &access, 1), cuda.access(address),
                   cuda->cuMemUnmap(address, granule), cuda->cuMemRelease(handle),
                   cuda->cuMemAddressFree(address, granule)});
  });
  add(table, "sticky.tear_down_earlier_mapping", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.grant(address, granule);
    const CUresult broke = break_context(cuda);
    return spaces({broke, cuda->cuMemUnmap(address, granule), cuda->cuMemRelease(handle),
                   cuda->cuMemAddressFree(address, granule)});
  });
  add(table, "sticky.vmm_without_current_context", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUresult broke = break_context(cuda);
    const CUresult detached = cuda->cuCtxSetCurrent(nullptr);
    return spaces({broke, detached, cuda.try_create(granule, device_memory()), cuda->cuMemUnmap(address, granule)});
  });
}

void sleep_a_millisecond() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

// A kernel that is surely running and reading `watched`; false if it does not start within five seconds. The stream is
// asked meanwhile, as a driver may let work advance only then.
bool start_spinning(Environment& cuda, const Kernels& kernels, std::atomic<unsigned>* flags, CUdeviceptr watched,
                    CUstream stream) {
  flags[0] = 0;
  flags[1] = 0;
  cuda.expect("spin", kernels.spin(flags, watched, stream));
  for (int i = 0; i < 5000 && flags[0] == 0; ++i) {
    static_cast<void>(cuda->cuStreamQuery(stream));
    sleep_a_millisecond();
  }
  return flags[0] != 0;
}

void add_running_kernels(Table& table) {
  add(table, "sticky.unmap_under_kernel", [](Environment& cuda) {
    const Kernels kernels{cuda};
    auto* flags = static_cast<std::atomic<unsigned>*>(cuda.allocate_host());
    const CUdeviceptr watched = cuda.mapped();
    const CUstream stream = cuda.stream();
    if (!start_spinning(cuda, kernels, flags, watched, stream)) return std::string{"not started"};
    const CUresult running = cuda->cuStreamQuery(stream);
    const CUresult unmapped = cuda->cuMemUnmap(watched, granule);
    if (unmapped != CUDA_SUCCESS) flags[1] = 1;  // nothing else ends the kernel before its time
    return spaces({running, unmapped, cuda->cuStreamSynchronize(stream), try_allocate(cuda)});
  });
  add(table, "sticky.revoke_under_kernel", [](Environment& cuda) {
    const Kernels kernels{cuda};
    auto* flags = static_cast<std::atomic<unsigned>*>(cuda.allocate_host());
    const CUdeviceptr watched = cuda.mapped();
    const CUstream stream = cuda.stream();
    if (!start_spinning(cuda, kernels, flags, watched, stream)) return std::string{"not started"};
    const CUmemAccessDesc none = access_of(0, 0);
    const CUresult revoked = cuda->cuMemSetAccess(watched, granule, &none, 1);
    if (revoked != CUDA_SUCCESS) flags[1] = 1;
    return spaces({revoked, cuda->cuStreamSynchronize(stream)});
  });
  add(table, "sticky.other_memory_under_kernel", [](Environment& cuda) {
    const Kernels kernels{cuda};
    auto* flags = static_cast<std::atomic<unsigned>*>(cuda.allocate_host());
    const CUstream stream = cuda.stream();
    if (!start_spinning(cuda, kernels, flags, cuda.mapped(), stream)) return std::string{"not started"};
    const CUdeviceptr other = cuda.mapped();
    cuda.unmap(other, granule);
    const CUresult running = cuda->cuStreamQuery(stream);
    flags[1] = 1;
    return spaces({running, cuda->cuStreamSynchronize(stream)});
  });
  add(table, "sticky.read_only_under_reading_kernel", [](Environment& cuda) {
    const Kernels kernels{cuda};
    auto* flags = static_cast<std::atomic<unsigned>*>(cuda.allocate_host());
    const CUdeviceptr watched = cuda.mapped();
    const CUstream stream = cuda.stream();
    if (!start_spinning(cuda, kernels, flags, watched, stream)) return std::string{"not started"};
    cuda.grant(watched, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    const CUresult running = cuda->cuStreamQuery(stream);
    flags[1] = 1;
    return spaces({running, cuda->cuStreamSynchronize(stream)});
  });
}

}  // namespace

void add_sticky_cases(Table& table) {
  add_groups(table);
  add_healing(table);
  add_created_contexts(table);
  add_memory_after(table);
  add_running_kernels(table);
}

}  // namespace cuvmm::conformance
