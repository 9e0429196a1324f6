#include "emulator/execution/operation.hpp"

#include <exception>

namespace cuvmm::emulator::execution {

namespace {

// A thread's own mark, set while a host function runs on it.
thread_local bool running_host_function = false;

class HostFunctionMark {
 public:
  explicit HostFunctionMark(bool set) : before_(running_host_function) {
    if (set) {
      running_host_function = true;
    }
  }
  HostFunctionMark(const HostFunctionMark&) = delete;
  HostFunctionMark& operator=(const HostFunctionMark&) = delete;
  ~HostFunctionMark() { running_host_function = before_; }

 private:
  bool before_;
};

}  // namespace

const char* name_of(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::copy:
      return "copy";
    case OperationKind::memory_set:
      return "memset";
    case OperationKind::kernel:
      return "kernel";
    case OperationKind::host_function:
      return "host function";
    case OperationKind::wait_value:
      return "wait for a value";
    case OperationKind::write_value:
      return "write of a value";
    case OperationKind::event_record:
      return "event record";
    case OperationKind::event_wait:
      return "event wait";
    case OperationKind::graph:
      return "graph launch";
  }
  return "operation";
}

Outcome attempt(OperationKind kind, const std::function<Outcome()>& run) {
  const HostFunctionMark mark(kind == OperationKind::host_function);
  try {
    return run();
  } catch (const std::exception& error) {
    return Outcome::fault(abi::CUDA_ERROR_LAUNCH_FAILED, error.what());
  } catch (...) {
    return Outcome::fault(abi::CUDA_ERROR_LAUNCH_FAILED, "an exception left the operation");
  }
}

bool inside_host_function() noexcept {
  return running_host_function;
}

}  // namespace cuvmm::emulator::execution
