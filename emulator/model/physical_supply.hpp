// Where physical memory comes from.
#pragma once

#include <cstdint>
#include <optional>

#include "driver/abi.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::model {

// One piece of physical memory, as this process knows it. It lives here as long as anything of the process refers to
// it: a handle, a mapping through one, or work that is using its bytes.
struct Allocation {
  std::uint64_t id = 0;
  Place place;
  std::uint64_t bytes = 0;
  abi::CUmemAllocationProp properties{};
  bool remote = false;  // memory of another node, which every device of this one reaches
  std::uint32_t references = 0;
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
};

}  // namespace cuvmm::emulator::model
