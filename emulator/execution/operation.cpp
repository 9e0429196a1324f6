#include "emulator/execution/operation.hpp"

#include <exception>
#include <new>

namespace cuvmm::emulator::execution {

namespace {

// Whose code the thread is running.
enum class Inside { nothing_special, host_function, kernel };
thread_local Inside inside = Inside::nothing_special;

class Mark {
 public:
  explicit Mark(OperationKind kind) : before_(inside) {
    if (kind == OperationKind::host_function) {
      inside = Inside::host_function;
    } else if (kind == OperationKind::kernel) {
      inside = Inside::kernel;
    }
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() { inside = before_; }

 private:
  Inside before_;
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
    case OperationKind::memory_allocation:
      return "memory allocation";
    case OperationKind::memory_free:
      return "memory free";
  }
  return "operation";
}

namespace {

// Without words where there is no memory for them.
Outcome with_words(Outcome outcome, const char* why) noexcept {
  try {
    outcome.why = why;
  } catch (const std::bad_alloc&) {
    outcome.why.clear();
  }
  return outcome;
}

}  // namespace

Outcome attempt(OperationKind kind, const std::function<Outcome()>& run) noexcept {
  const Mark mark(kind);
  try {
    return run();
  } catch (const std::bad_alloc& error) {
    // What is the driver's own code has changed nothing that it cannot do again; a function of the program's may have.
    const bool again = kind != OperationKind::host_function;
    return with_words(again ? Outcome::short_of_memory() : Outcome::fault(abi::CUDA_ERROR_LAUNCH_FAILED, {}),
                      error.what());
  } catch (const std::exception& error) {
    return with_words(Outcome::fault(abi::CUDA_ERROR_LAUNCH_FAILED, {}), error.what());
  } catch (...) {
    return with_words(Outcome::fault(abi::CUDA_ERROR_LAUNCH_FAILED, {}), "an exception left the operation");
  }
}

bool inside_host_function() noexcept {
  return inside == Inside::host_function;
}

bool inside_kernel() noexcept {
  return inside == Inside::kernel;
}

}  // namespace cuvmm::emulator::execution
