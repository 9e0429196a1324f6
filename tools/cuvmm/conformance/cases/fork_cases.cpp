// A process that forks: what its child is answered.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/process_pool.hpp"

namespace cuvmm::conformance {

namespace {

// What the function answers in a child of this process.
template <class Function>
std::string in_child(Function function) {
  TaskProcess child{{[&](int descriptor) { write_to(descriptor, Answer{function()}.text()); }},
                    std::chrono::seconds{10}};
  const Ended ended = child.wait();
  return ended.complaint().empty() ? ended.output : ended.complaint();
}

void add_before_initialisation(Table& table) {
  table.add(
      "fork.before_init",
      [](Environment& cuda) {
        return in_child([&] {
          int count = 0;
          const CUresult initialised = cuda->cuInit(0);
          return commas({initialised, cuda->cuDeviceGetCount(&count)});
        });
      },
      needs_loaded);
  table.add(
      "fork.before_init_then_parent",
      [](Environment& cuda) {
        const std::string child = in_child([&] { return cuda->cuInit(0); });
        return commas({child, cuda->cuInit(0)});
      },
      needs_loaded);
}

void add_after_initialisation(Table& table) {
  table.add(
      "fork.init_again", [](Environment& cuda) { return in_child([&] { return cuda->cuInit(0); }); },
      needs_initialized);
  table.add("fork.init_again_with_context", [](Environment& cuda) {
    return in_child([&] {
      int count = 0;
      const CUresult initialised = cuda->cuInit(0);
      return commas({initialised, cuda->cuDeviceGetCount(&count)});
    });
  });
  table.add("fork.vmm_calls", [](Environment& cuda) {
    const CUdeviceptr mapped = cuda.mapped();
    return in_child([&] {
      CUdeviceptr address = 0;
      const CUresult created = cuda.try_create(granule, device_memory());
      const CUresult reserved = cuda->cuMemAddressReserve(&address, granule, 0, 0, 0);
      return commas({created, reserved, cuda.access(mapped), cuda->cuMemUnmap(mapped, granule)});
    });
  });
  table.add("fork.other_calls", [](Environment& cuda) {
    return in_child([&] {
      int version = 0;
      const char* name = nullptr;
      CUcontext context = nullptr;
      const CUresult told = cuda->cuDriverGetVersion(&version);
      const CUresult named = cuda->cuGetErrorName(CUDA_SUCCESS, &name);
      const CUresult current = cuda->cuCtxGetCurrent(&context);
      return commas({told, named, current, cuda->cuCtxSynchronize(), cuda->cuMemsetD8(0, 1, 1)});
    });
  });
  table.add("fork.parent_goes_on", [](Environment& cuda) {
    const CUdeviceptr mapped = cuda.mapped();
    cuda.write_word(mapped, 14);
    const std::string child = in_child([&] { return cuda->cuInit(0); });
    return commas({child, cuda.read_word(mapped), cuda->cuMemUnmap(mapped, granule)});
  });
  table.add("fork.child_ends_in_order", [](Environment& cuda) {
    const CUdeviceptr mapped = cuda.mapped();
    cuda.write_word(mapped, 15);
    int status = 0;
    const pid_t child = fork();
    if (child == 0) std::exit(0);  // with the handlers of the driver for a process's end
    waitpid(child, &status, 0);
    return commas({WIFEXITED(status) ? "ended" : "killed", cuda.read_word(mapped)});
  });
}

}  // namespace

void add_fork_cases(Table& table) {
  add_before_initialisation(table);
  add_after_initialisation(table);
}

}  // namespace cuvmm::conformance
