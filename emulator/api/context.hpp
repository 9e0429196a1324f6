// Contexts, and which of them is current to a thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "driver/abi.hpp"

namespace cuvmm::emulator::execution {
struct Context;
}

namespace cuvmm::emulator::api {

using namespace cuvmm::abi;

// What a context has from its beginning to its end: a primary context that is released and retained again, or reset,
// begins a new life under its old handle.
struct ContextLife {
  std::uint64_t id = 0;  // its own for ever; memory belongs to it
  std::shared_ptr<execution::Context> execution;
  std::set<int> peers;  // devices whose cuMemAlloc memory its kernels may touch
};

// A context as the driver's callers know it. Its address is its CUcontext, and stays its own for as long as the driver
// lives, so that a handle of a destroyed context is recognised. What is not constant is guarded by the table's lock.
struct Context {
  Context(int device_, bool primary_) : device(device_), primary(primary_) {}
  // A dead one under a handle that never was a context's.
  explicit Context(CUcontext adopted) : device(0), primary(false), adopted_(adopted) {}

  const int device;
  const bool primary;
  unsigned flags = 0;
  unsigned references = 0;          // of a primary context
  std::optional<ContextLife> life;  // nothing while it is dead

  [[nodiscard]] CUcontext handle() { return adopted_ != nullptr ? adopted_ : reinterpret_cast<CUcontext>(this); }

 private:
  CUcontext adopted_ = nullptr;
};

// A live context as a call found it; it stays usable, if only to learn that the context has ended meanwhile.
struct ActiveContext {
  Context* context = nullptr;
  std::uint64_t id = 0;
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<execution::Context> execution;
};

// All contexts of one driver. Thread-safe; a thread's stack is its own.
class ContextTable {
 public:
  ContextTable();
  ~ContextTable();
  ContextTable(const ContextTable&) = delete;
  ContextTable& operator=(const ContextTable&) = delete;

  // The live context of that handle, or null.
  [[nodiscard]] Context* find(CUcontext handle);
  // The handle of the live context whose life has that number, or null.
  [[nodiscard]] CUcontext find_by_id(std::uint64_t id);
  // The context of that handle, be it dead; one that was never alive if there is none. Lives as long as the table.
  [[nodiscard]] Context& find_or_adopt(CUcontext handle);
  // The execution side of the life of that number; null once it has ended.
  [[nodiscard]] std::shared_ptr<execution::Context> execution_of(std::uint64_t id);
  // The execution side with that number of its own (execution::Context::id), of whichever life; null if none is alive.
  [[nodiscard]] std::shared_ptr<execution::Context> execution_with(std::uint64_t execution_id);
  // A dead context: begin() brings it to life.
  Context& add(int device);
  // Forgets a context that was added and never begun.
  void remove(Context& context);
  [[nodiscard]] Context& primary(int device);

  [[nodiscard]] std::optional<ActiveContext> active(Context& context);
  // The number of the context's present life; 0 while it is dead.
  [[nodiscard]] std::uint64_t life_of(const Context& context);
  // Whether the handle is that of a context which was alive once and is not now.
  [[nodiscard]] bool is_dead(CUcontext handle);

  // Gives a dead context a life; under the lock.
  void begin(Context& context, std::shared_ptr<execution::Context> execution);

  // The calling thread's stack of current contexts, the last being current.
  [[nodiscard]] std::vector<Context*>& stack() const;
  [[nodiscard]] Context* current() const;

  template <class Work>
  auto locked(Work&& work) {
    const std::lock_guard lock(mutex_);
    return work();
  }

 private:
  Context& add_locked(int device, bool primary);

  const std::uint64_t table_id_;
  std::mutex mutex_;
  std::uint64_t next_life_ = 1;
  std::map<CUcontext, std::unique_ptr<Context>> contexts_;
  std::map<CUcontext, std::unique_ptr<Context>> adopted_;  // under handles that were never given out
  std::map<int, Context*> primaries_;
};

}  // namespace cuvmm::emulator::api
