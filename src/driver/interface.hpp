// The one door to a CUDA driver. The loaded driver, the emulated driver and every decorator implement it.
#pragma once

#include <optional>
#include <string>

#include "driver/abi.hpp"
#include "driver/entry_point.hpp"

namespace cuvmm::driver {

using namespace abi;  // the entry points are spoken of as cuda.h does

// Where an emulated driver's memory is. Descriptors of it mean nothing in another place; fabric handles mean something
// on the other nodes of the same machine.
struct EmulatedPlace {
  std::string machine;  // tells machines apart, whatever they are called
  int node = 0;
};

// A driver: one virtual function per entry point, with the driver's own parameters and answers.
//
// Thread-safety: as the driver's: any function may be called from any thread at any time.
class Interface {
 public:
  Interface() = default;
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;
  virtual ~Interface() = default;

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) virtual CUresult name parameters = 0;
#include "driver/entry_points.def"

  // What this driver is, for people: "CUDA driver 13.0 (libcuda.so.1)", "emulated driver, profile h200-580, strict".
  [[nodiscard]] virtual std::string description() const = 0;

  // Whether this is the emulated driver beneath whatever decorators there are.
  [[nodiscard]] virtual bool emulated() const noexcept = 0;

  // On which machine and node its memory is, if that is emulated, also where the driver is one under the CUDA driver's
  // name; nothing for a real one, whose machine is the host.
  [[nodiscard]] virtual std::optional<EmulatedPlace> emulated_place() const {
    return std::nullopt;
  }

  // Why the calling thread's last call to this driver failed, in words, where the driver knows more than its code
  // says: the rule that was broken, behind its id and a colon where it is one of the rule book, and, on a line of its
  // own, the way out. Empty if it knows nothing more, or if that
  // call succeeded.
  [[nodiscard]] virtual std::string explanation() const {
    return {};
  }

  // Whether the driver has this entry point. Calling one that is missing answers CUDA_ERROR_NOT_SUPPORTED.
  [[nodiscard]] virtual bool has(EntryPoint) const noexcept {
    return true;
  }
};

// Traits<EntryPoint::cuMemMap>::method is &Interface::cuMemMap.
template <EntryPoint>
struct Traits;
#define CUVMM_ENTRY_POINT(group, name_, version, parameters, arguments) \
  template <>                                                           \
  struct Traits<EntryPoint::name_> {                                    \
    static constexpr auto method = &Interface::name_;                   \
  };
#include "driver/entry_points.def"

}  // namespace cuvmm::driver
