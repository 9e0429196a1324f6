// Contexts, and which of them is current to a thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "driver/abi.hpp"

namespace cuvmm::emulator::execution {
struct Context;
}

namespace cuvmm::emulator::api {

using namespace cuvmm::abi;

// A context as the driver's callers know it. Its address is its CUcontext, and stays its own for as long as the driver
// lives, so that a handle of a destroyed context is recognised.
struct Context {
  std::uint64_t id = 0;
  int device = 0;
  bool primary = false;
  unsigned flags = 0;
  std::shared_ptr<execution::Context> execution;  // null for a primary context that nobody retains
  bool live = false;
  unsigned references = 0;   // of a primary context
  std::set<int> peers;       // devices whose cuMemAlloc memory its kernels may touch

  [[nodiscard]] CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
};

// All contexts of one driver. Thread-safe but for what Context's own members say; the thread's stack is its own.
class ContextTable {
 public:
  ContextTable();
  ~ContextTable();

  // The live context of that handle, or null.
  [[nodiscard]] Context* find(CUcontext handle);
  // The live or dead context of that handle, or null if it never was one.
  [[nodiscard]] Context* find_any(CUcontext handle);
  // The context of that number, or null.
  [[nodiscard]] Context* find_by_id(std::uint64_t id);
  Context& add(int device, bool primary);
  [[nodiscard]] Context& primary(int device);

  // The calling thread's stack of current contexts, the last being current.
  [[nodiscard]] std::vector<Context*>& stack() const;
  [[nodiscard]] Context* current() const;

  template <class Work>
  auto locked(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work();
  }

 private:
  const std::uint64_t table_id_;
  std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  std::map<CUcontext, std::unique_ptr<Context>> contexts_;
  std::map<int, Context*> primaries_;
};

}  // namespace cuvmm::emulator::api
