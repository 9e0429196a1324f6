// Where physical memory comes from.
#pragma once

#include <cstdint>
#include <optional>

#include "driver/abi.hpp"
#include "emulator/model/multicast.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::model {

// One piece of physical memory, or a multicast object, as this process knows it. It lives here as long as anything of
// the process refers to it: a handle, a mapping through one, or work that is using its bytes.
struct Allocation {
  std::uint64_t id = 0;
  Place place;
  std::uint64_t bytes = 0;
  abi::CUmemAllocationProp properties{};
  bool remote = false;  // memory of another node, which every device of this one reaches
  std::uint32_t references = 0;
  std::uint32_t multicast_devices = 0;  // of a multicast object: for how many it is; 0: it is memory
  std::uint32_t binds = 0;              // how often this process has it bound to multicast objects

  [[nodiscard]] bool is_multicast() const noexcept { return multicast_devices != 0; }
};

// The machine that a store's memory is part of. Not thread-safe.
class PhysicalSupply {
 public:
  PhysicalSupply() = default;
  PhysicalSupply(const PhysicalSupply&) = delete;
  PhysicalSupply& operator=(const PhysicalSupply&) = delete;
  virtual ~PhysicalSupply() = default;

  // Takes new memory and answers its identity, which is never used twice; nothing if the place has too little left.
  // Throws std::bad_alloc, and std::system_error if the machine cannot be asked.
  [[nodiscard]] virtual std::optional<std::uint64_t> take(Place place, std::uint64_t bytes,
                                                          const abi::CUmemAllocationProp& properties) = 0;
  // The process refers to that memory no more.
  virtual void give_back(const Allocation& allocation) noexcept = 0;

  // Bytes that nobody has, and all there are. Throws std::system_error if the machine cannot be asked.
  [[nodiscard]] virtual std::uint64_t free(Place place) = 0;
  [[nodiscard]] virtual std::uint64_t total(Place place) const = 0;

  // Whether this process may use an IMEX channel, without which there are no fabric handles.
  [[nodiscard]] virtual bool has_imex_channel() = 0;

  // A new multicast object's identity, which is never used twice, nor one of memory. It lives, with what is bound to
  // it, as long as somebody refers to it. All of these throw as take() does.
  [[nodiscard]] virtual std::uint64_t take_multicast(std::uint32_t devices, std::uint64_t bytes,
                                                     const abi::CUmemAllocationProp& properties) = 0;
  [[nodiscard]] virtual MulticastState multicast_state(const Allocation& object) = 0;
  // Devices are this node's.
  [[nodiscard]] virtual JoinOutcome join_multicast(const Allocation& object, int device) = 0;
  [[nodiscard]] virtual BindOutcome bind_multicast(const Allocation& object, int device, std::uint64_t offset,
                                                   std::uint64_t bytes, Allocation& memory,
                                                   std::uint64_t memory_offset) = 0;
  // False unless exactly that was bound; otherwise which memory it was.
  [[nodiscard]] virtual bool unbind_multicast(const Allocation& object, int device, std::uint64_t offset,
                                              std::uint64_t bytes, std::uint64_t* memory) = 0;
  // Whether the memory is bound to any object.
  [[nodiscard]] virtual bool is_bound(const Allocation& memory) = 0;
};

}  // namespace cuvmm::emulator::model
