// The owner of a range of virtual addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

class Mapping;

// A range of addresses with nothing behind them (guide 4.16.2.2; cuMemAddressReserve, cuMemAddressFree). Its mappings
// share the ownership, so it is given back when the owner and all its mappings are gone. Destruction never throws: a
// failure goes to the clean-up failure handler.
//
// Different objects may be used from different threads. A moved-from one may be assigned to or destroyed, and asked for
// its address and size, which are 0; all else is refused (InvalidUse).
class AddressReservation {
 public:
  // Reserves `bytes` bytes, a multiple of the granularity. `alignment` is 0 for the driver's own or a power of two;
  // `hint` is an address that would be welcome, which the driver is free to ignore. Throws InvalidUse if a number
  // breaks these rules, OutOfAddressSpace if no such range is free, with the largest size that is.
  [[nodiscard]] static AddressReservation create(const Driver& driver, std::size_t bytes, std::size_t alignment = 0,
                                                 DeviceAddress hint = {});

  // The same, with the failure as a value.
  [[nodiscard]] static Result<AddressReservation> try_create(const Driver& driver, std::size_t bytes,
                                                             std::size_t alignment = 0, DeviceAddress hint = {});

  // Takes over a range that other code reserved with cuMemAddressReserve, exactly as it was reserved, and frees it
  // instead of that code. What that code mapped in it must be unmapped by then. Throws InvalidUse for an address or a
  // size of 0. Makes no driver call.
  [[nodiscard]] static AddressReservation adopt(const Driver& driver, DeviceAddress address, std::size_t bytes);

  AddressReservation(AddressReservation&&) noexcept = default;
  AddressReservation& operator=(AddressReservation&&) noexcept = default;
  AddressReservation(const AddressReservation&) = delete;
  AddressReservation& operator=(const AddressReservation&) = delete;
  ~AddressReservation() = default;

  [[nodiscard]] DeviceAddress address() const noexcept;
  [[nodiscard]] std::size_t size() const noexcept;  // bytes
  [[nodiscard]] const Driver& driver() const;

  // Gives the range to the caller, who frees it with cuMemAddressFree, whole; answers its address. Afterwards the
  // object is as moved from. Throws InvalidUse while a mapping is left, and then still owns the range. Makes no driver
  // call.
  [[nodiscard]] DeviceAddress give_out();

  // Frees the range now; afterwards the object is as moved from. Throws InvalidUse while a mapping is left, Error if
  // the driver refuses, and then still owns the range.
  void free();

 private:
  friend class Mapping;
  struct State;
  explicit AddressReservation(std::shared_ptr<State> state) noexcept;
  void require_no_mapping(std::string_view function) const;

  std::shared_ptr<State> state_;
};

}  // namespace cuvmm
