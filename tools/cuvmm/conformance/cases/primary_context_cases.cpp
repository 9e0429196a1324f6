// Primary contexts: counting, flags, reset.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// "OK/FLAGS/ACTIVE"
std::string state(Environment& cuda, CUdevice device = 0) {
  unsigned flags = 999;
  int active = -7;
  const CUresult result = cuda->cuDevicePrimaryCtxGetState(device, &flags, &active);
  return slashes({result, flags, active});
}

std::string try_allocate(Environment& cuda) {
  CUdeviceptr address = 0;
  return result_name(cuda->cuMemAlloc(&address, 4096));
}

void add_counting(Table& table) {
  table.add(
      "primary.state_at_first", [](Environment& cuda) { return state(cuda); }, needs_initialized);
  table.add("primary.state_retained", [](Environment& cuda) { return state(cuda); });
  table.add("primary.state_released", [](Environment& cuda) {
    return spaces({cuda->cuDevicePrimaryCtxRelease(0), state(cuda)});
  });
  table.add("primary.retained_twice_released_once", [](Environment& cuda) {
    const bool same = cuda.primary(0) == cuda.context();
    return spaces({same ? "same" : "other", cuda->cuDevicePrimaryCtxRelease(0), state(cuda)});
  });
  table.add("primary.released_too_often", [](Environment& cuda) {
    return spaces({cuda->cuDevicePrimaryCtxRelease(0), cuda->cuDevicePrimaryCtxRelease(0)});
  });
  table.add(
      "primary.release_never_retained", [](Environment& cuda) { return cuda->cuDevicePrimaryCtxRelease(0); },
      needs_initialized);
  table.add("primary.retain_again", [](Environment& cuda) {
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(0));
    const bool same = cuda.primary(0) == cuda.context();
    return spaces({same ? "same" : "other", state(cuda)});
  });
  table.add(
      "primary.retain_null_out", [](Environment& cuda) { return cuda->cuDevicePrimaryCtxRetain(nullptr, 0); },
      needs_initialized);
  for (const int device : {-1, 99})
    table.add(
        "primary.of_device_" + std::to_string(device),
        [device](Environment& cuda) {
          CUcontext context = nullptr;
          unsigned flags = 0;
          int active = 0;
          return commas({cuda->cuDevicePrimaryCtxRetain(&context, device), cuda->cuDevicePrimaryCtxRelease(device),
                         cuda->cuDevicePrimaryCtxReset(device),
                         cuda->cuDevicePrimaryCtxGetState(device, &flags, &active),
                         cuda->cuDevicePrimaryCtxSetFlags(device, 0)});
        },
        needs_initialized);
  table.add("primary.state_null_outputs", [](Environment& cuda) {
    unsigned flags = 0;
    int active = 0;
    return commas(
        {cuda->cuDevicePrimaryCtxGetState(0, nullptr, &active), cuda->cuDevicePrimaryCtxGetState(0, &flags, nullptr)});
  });
}

void add_release_while_current(Table& table) {
  table.add("primary.released_while_current", [](Environment& cuda) {
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(0));
    CUcontext context = nullptr;
    const CUresult asked = cuda->cuCtxGetCurrent(&context);
    return spaces({slashes({asked, context == nullptr          ? "null"
                                   : context == cuda.context() ? "primary"
                                                               : "other"}),
                   try_allocate(cuda), cuda->cuCtxSynchronize()});
  });
  table.add("primary.released_then_set", [](Environment& cuda) {
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(0));
    return spaces({cuda->cuCtxSetCurrent(cuda.context()), try_allocate(cuda)});
  });
  table.add("primary.released_then_retained", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(0));
    const CUcontext again = cuda.primary(0);
    unsigned word = 0;
    return spaces(
        {try_allocate(cuda), cuda->cuCtxSetCurrent(again), try_allocate(cuda), cuda->cuMemcpyDtoH(&word, address, 4)});
  });
  table.add("primary.released_keeps_vmm", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 42);
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(0));
    cuda.make_current(cuda.primary(0));
    return spaces({cuda.access(address), cuda.read_word(address)});
  });
}

void add_flags(Table& table) {
  for (const unsigned flags : {0U, 1U, 2U, 4U, 8U, 0x10U, 0x80U, 0x100U, 0x1000U})
    table.add(
        "primary.flags_before_" + std::to_string(flags),
        [flags](Environment& cuda) {
          const CUresult result = cuda->cuDevicePrimaryCtxSetFlags(0, flags);
          const std::string before = state(cuda);
          cuda.make_current(cuda.primary(0));
          unsigned seen = 999;
          const CUresult asked = cuda->cuCtxGetFlags(&seen);
          return spaces({result, before, slashes({asked, seen})});
        },
        needs_initialized);
  table.add("primary.flags_while_active", [](Environment& cuda) {
    const CUresult result = cuda->cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD);
    unsigned seen = 999;
    const CUresult asked = cuda->cuCtxGetFlags(&seen);
    return spaces({result, state(cuda), slashes({asked, seen})});
  });
}

void add_reset(Table& table) {
  table.add(
      "primary.reset_never_retained",
      [](Environment& cuda) {
        return spaces({cuda->cuDevicePrimaryCtxReset(0), state(cuda)});
      },
      needs_initialized);
  table.add("primary.reset", [](Environment& cuda) {
    return spaces({cuda->cuDevicePrimaryCtxReset(0), state(cuda), try_allocate(cuda), cuda->cuCtxSynchronize()});
  });
  table.add("primary.reset_then_set_again", [](Environment& cuda) {
    cuda.expect("reset", cuda->cuDevicePrimaryCtxReset(0));
    return spaces({cuda->cuCtxSetCurrent(cuda.context()), try_allocate(cuda), state(cuda)});
  });
  table.add("primary.reset_then_retained", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    cuda.expect("reset", cuda->cuDevicePrimaryCtxReset(0));
    const CUcontext again = cuda.primary(0);
    unsigned word = 0;
    return spaces({again == cuda.context() ? "same" : "other", cuda->cuCtxSetCurrent(again), try_allocate(cuda),
                   cuda->cuMemcpyDtoH(&word, address, 4)});
  });
  table.add("primary.reset_keeps_count", [](Environment& cuda) {
    cuda.expect("reset", cuda->cuDevicePrimaryCtxReset(0));
    return spaces({cuda->cuDevicePrimaryCtxRelease(0), cuda->cuDevicePrimaryCtxRelease(0)});
  });
  table.add("primary.reset_keeps_vmm", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 42);
    cuda.expect("reset", cuda->cuDevicePrimaryCtxReset(0));
    cuda.make_current(cuda.primary(0));
    return spaces({cuda.access(address), cuda.read_word(address)});
  });
  table.add("primary.reset_frees_host_memory", [](Environment& cuda) {
    void* host = cuda.allocate_host();
    cuda.expect("reset", cuda->cuDevicePrimaryCtxReset(0));
    cuda.make_current(cuda.primary(0));
    return cuda->cuMemFreeHost(host);
  });
}

}  // namespace

void add_primary_context_cases(Table& table) {
  add_counting(table);
  add_release_while_current(table);
  add_flags(table);
  add_reset(table);
}

}  // namespace cuvmm::conformance
