// Created contexts, and the stack of current ones.
#include <thread>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// A context's name in answers.
std::string context_name(const Environment& cuda, CUcontext context, CUcontext created = nullptr) {
  if (context == nullptr) return "null";
  if (context == cuda.context()) return "primary";
  return context == created ? "created" : "other";
}

std::string current(Environment& cuda, CUcontext created = nullptr) {
  CUcontext context = nullptr;
  const CUresult result = cuda->cuCtxGetCurrent(&context);
  return slashes({result, context_name(cuda, context, created)});
}

std::string pop(Environment& cuda, CUcontext created = nullptr) {
  CUcontext context = nullptr;
  const CUresult result = cuda->cuCtxPopCurrent(&context);
  return slashes({result, context_name(cuda, context, created)});
}

CUcontext garbage() {
  static unsigned long long zeros[512] = {};
  return reinterpret_cast<CUcontext>(&zeros[0]);
}

void add_stack(Table& table) {
  table.add("context.current", [](Environment& cuda) { return current(cuda); });
  table.add("context.current_null_out", [](Environment& cuda) { return cuda->cuCtxGetCurrent(nullptr); });
  table.add("context.pop_empty", [](Environment& cuda) {
    cuda.make_current(nullptr);
    return pop(cuda);
  });
  table.add("context.pop_twice", [](Environment& cuda) { return spaces({pop(cuda), pop(cuda), current(cuda)}); });
  table.add("context.pop_null_out", [](Environment& cuda) {
    return spaces({cuda->cuCtxPopCurrent(nullptr), current(cuda)});
  });
  table.add("context.push_null", [](Environment& cuda) { return cuda->cuCtxPushCurrent(nullptr); });
  table.add("context.push_same", [](Environment& cuda) {
    return spaces({cuda->cuCtxPushCurrent(cuda.context()), pop(cuda), pop(cuda), pop(cuda)});
  });
  table.add("context.push_and_pop_created", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    return spaces({current(cuda, created), pop(cuda, created), current(cuda), cuda->cuCtxPushCurrent(created),
                   current(cuda, created)});
  });
  table.add("context.set_replaces_top", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.make_current(cuda.context());
    return spaces({pop(cuda, created), pop(cuda, created), pop(cuda, created)});
  });
  table.add("context.set_null_pops", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.make_current(nullptr);
    return spaces({current(cuda, created), pop(cuda, created)});
  });
  table.add("context.set_null_twice", [](Environment& cuda) {
    return spaces({cuda->cuCtxSetCurrent(nullptr), cuda->cuCtxSetCurrent(nullptr), current(cuda)});
  });
  table.add("context.set_garbage", [](Environment& cuda) { return cuda->cuCtxSetCurrent(garbage()); });
  table.add("context.push_garbage", [](Environment& cuda) { return cuda->cuCtxPushCurrent(garbage()); });
  table.add("context.new_thread_has_none", [](Environment& cuda) {
    std::string answer;
    std::thread{[&] { answer = current(cuda); }}.join();
    return answer;
  });
}

void add_creation(Table& table) {
  table.add("context.create", [](Environment& cuda) {
    CUcontext created = nullptr;
    const CUresult result = cuda->cuCtxCreate(&created, 0, 0);
    CUdevice device = -7;
    const CUresult asked = cuda->cuCtxGetDevice(&device);
    return spaces({result, current(cuda, created), slashes({asked, device})});
  });
  table.add("context.create_null_out", [](Environment& cuda) { return cuda->cuCtxCreate(nullptr, 0, 0); });
  for (const int device : {-1, 99})
    table.add("context.create_on_" + std::to_string(device), [device](Environment& cuda) {
      CUcontext created = nullptr;
      return cuda->cuCtxCreate(&created, 0, device);
    });
  for (const unsigned flags : {0U, 1U, 2U, 3U, 4U, 5U, 8U, 0x10U, 0x18U, 0x80U, 0x100U, 0x1000U})
    table.add("context.create_flags_" + std::to_string(flags), [flags](Environment& cuda) -> Answer {
      CUcontext created = nullptr;
      const CUresult result = cuda->cuCtxCreate(&created, flags, 0);
      if (result != CUDA_SUCCESS) return result;
      unsigned seen = 999;
      const CUresult asked = cuda->cuCtxGetFlags(&seen);
      return spaces({result, slashes({asked, seen})});
    });
  table.add("context.primary_flags", [](Environment& cuda) {
    unsigned seen = 999;
    const CUresult asked = cuda->cuCtxGetFlags(&seen);
    return slashes({asked, seen});
  });
  table.add("context.get_device_null_out", [](Environment& cuda) { return cuda->cuCtxGetDevice(nullptr); });
  table.add("context.get_flags_null_out", [](Environment& cuda) { return cuda->cuCtxGetFlags(nullptr); });
}

void add_destruction(Table& table) {
  table.add("context.destroy_null", [](Environment& cuda) { return cuda->cuCtxDestroy(nullptr); });
  table.add("context.destroy_primary", [](Environment& cuda) {
    return spaces({cuda->cuCtxDestroy(cuda.context()), current(cuda)});
  });
  table.add("context.destroy_current", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    return spaces({cuda->cuCtxDestroy(created), current(cuda, created), pop(cuda, created)});
  });
  table.add("context.destroy_not_current", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.make_current(cuda.context());
    return spaces({cuda->cuCtxDestroy(created), current(cuda)});
  });
  table.add("context.destroy_below_top", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.expect("push", cuda->cuCtxPushCurrent(cuda.context()));
    return spaces({cuda->cuCtxDestroy(created), pop(cuda, created), current(cuda, created), pop(cuda, created)});
  });
  table.add("context.destroy_twice", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    return spaces({cuda->cuCtxDestroy(created), cuda->cuCtxDestroy(created)});
  });
  table.add("context.set_destroyed", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    return cuda->cuCtxSetCurrent(created);
  });
  table.add("context.destroyed_by_other_thread", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    CUresult result = CUDA_SUCCESS;
    std::thread{[&] { result = cuda->cuCtxDestroy(created); }}.join();
    CUdeviceptr address = 0;
    return spaces({result, current(cuda, created), cuda->cuMemAlloc(&address, 4096), cuda->cuCtxSynchronize(),
                   pop(cuda, created), current(cuda)});
  });
  table.add("context.destroyed_with_memory", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    cuda.make_current(cuda.context());
    unsigned word = 0;
    return commas({cuda->cuMemcpyDtoH(&word, address, 4), cuda->cuMemFree(address)});
  });
  table.add("context.destroyed_keeps_vmm", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 42);
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    cuda.make_current(cuda.context());
    return spaces({cuda.access(address), cuda.read_word(address)});
  });
}

void add_peer_access(Table& table) {
  table.add("context.peer_access_to_itself",
            [](Environment& cuda) { return cuda->cuCtxEnablePeerAccess(cuda.context(), 0); });
  table.add("context.peer_access_same_device", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    cuda.make_current(cuda.context());
    return cuda->cuCtxEnablePeerAccess(created, 0);
  });
  table.add("context.peer_access_null", [](Environment& cuda) { return cuda->cuCtxEnablePeerAccess(nullptr, 0); });
  table.add("context.peer_access_disable_itself",
            [](Environment& cuda) { return cuda->cuCtxDisablePeerAccess(cuda.context()); });
}

}  // namespace

void add_context_cases(Table& table) {
  add_stack(table);
  add_creation(table);
  add_destruction(table);
  add_peer_access(table);
}

}  // namespace cuvmm::conformance
