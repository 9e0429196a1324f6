// The execution side of a driver context: its streams and its sticky error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/execution/stream.hpp"

namespace cuvmm::emulator::execution {

// The first failure of an operation. Every later call that needs the context answers `code`.
struct Fault {
  abi::CUresult code = abi::CUDA_SUCCESS;
  std::string why{};
};

// Contexts of one fault group fail together, as the contexts of one process on one device do: after an illegal address
// in one of them, calls in the others answer ILLEGAL_ADDRESS too. A context made later is not affected by
// itself; its owner asks Engine::check_group first.
struct FaultGroup {
  std::uint64_t value = 0;
};

// What is beneath the constants belongs to the engine and is guarded by its mutex.
struct Context {
  Context(std::uint64_t id_, FaultGroup fault_group_) : id(id_), fault_group(fault_group_) {}

  const std::uint64_t id;
  const FaultGroup fault_group;

  std::optional<Fault> fault;
  bool destroyed = false;
  std::shared_ptr<Stream> legacy;
  std::vector<std::shared_ptr<Stream>> streams;  // all but the legacy one; destroyed ones until they are drained
  struct PerThread {
    std::shared_ptr<Stream> stream;
    std::weak_ptr<const void> thread;  // this_thread_life()
  };
  std::map<std::uint64_t, PerThread> per_thread;  // by this_thread_number(); of ended threads until another begins one
  std::size_t running = 0;                        // operations that a thread is running now
  std::size_t running_on_gpu = 0;                 // those of them that are not host functions
};

// A number for the calling thread that no other thread of the process ever has.
[[nodiscard]] std::uint64_t this_thread_number() noexcept;

// Expires when the calling thread ends; the main thread's never does.
[[nodiscard]] std::weak_ptr<const void> this_thread_life();

}  // namespace cuvmm::emulator::execution
