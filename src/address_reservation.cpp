#include "cuvmm/address_reservation.hpp"

#include <fmt/format.h>

#include <bit>
#include <optional>

#include "cuvmm/physical_memory.hpp"
#include "mapping_refusal.hpp"
#include "owner_states.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::EntryPoint;
using driver::try_call;

namespace {

// The largest size below `bytes` that can be reserved, found by trying.
std::size_t largest_hole(const Driver& driver, std::size_t bytes) {
  constexpr std::size_t unit = std::size_t{2} << 20;  // what drivers reserve in
  std::size_t found = 0;
  for (std::size_t step = std::bit_floor(bytes); step >= unit; step /= 2) {
    unsigned long long address = 0;
    if (found + step >= bytes ||
        driver.interface().cuMemAddressReserve(&address, found + step, 0, 0, 0) != abi::CUDA_SUCCESS)
      continue;
    clean_up<EntryPoint::cuMemAddressFree>(driver.interface(), address, found + step);
    found += step;
  }
  return found;
}

constexpr std::string_view creating = "AddressReservation::create";

// What is wrong with the numbers by themselves.
std::optional<Failure> refusal_of(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0)
    return invalid_use(creating, "bytes = 0", "A reservation has a size", "Reserve a multiple of the granularity",
                       "RESERVE-SIZE-GRANULARITY");
  if (alignment != 0 && !is_power_of_two(alignment))
    return invalid_use(creating, fmt::format("alignment = {}", alignment), "An alignment is a power of two",
                       "Leave it at 0 for the driver's own", "RESERVE-ALIGNMENT");
  return std::nullopt;
}

// What is wrong with them for this driver, asked once it has refused them.
Failure with_numbers_told(Failure failure, const Driver& driver, std::size_t bytes, DeviceAddress hint) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE) return failure;
  const std::size_t unit = PhysicalMemory::granularity(driver, {});
  const auto tell = [&](const char* rule_id, std::string_view what, std::string way_out) {
    failure.rule_ids = rule_id;
    failure.rule =
        fmt::format("{} must be a multiple of the granularity, {} bytes ({})", what, unit, format_bytes(unit));
    failure.way_out = std::move(way_out);
  };
  if (!is_aligned(bytes, unit))
    tell("RESERVE-SIZE-GRANULARITY", fmt::format("The size, {} bytes,", bytes),
         "Round it up: cuvmm::align_up(bytes, granularity)");
  else if (!is_aligned(hint.value, unit))
    tell("RESERVE-HINT-ALIGNED", fmt::format("The hint, {:#x},", hint.value),
         "Align it, or give none: the driver is free to ignore it");
  return failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

}  // namespace

AddressReservation::AddressReservation(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<AddressReservation> AddressReservation::try_create(const Driver& driver, std::size_t bytes,
                                                          std::size_t alignment, DeviceAddress hint) {
  if (auto refused = refusal_of(bytes, alignment)) return std::move(*refused);
  auto state = std::make_shared<State>(driver, bytes);  // before the call: nothing may fail after it
  const Result<void> reserved = try_call<EntryPoint::cuMemAddressReserve>(driver.interface(), &state->address.value,
                                                                          bytes, alignment, hint.value, 0ULL);
  if (!reserved) {
    Failure failure = with_numbers_told(reserved.failure(), driver, bytes, hint);
    if (failure.kind == ErrorKind::out_of_address_space) failure.largest_hole_bytes = largest_hole(driver, bytes);
    return failure;
  }
  state->owned = true;
  return AddressReservation(std::move(state));
}

AddressReservation AddressReservation::create(const Driver& driver, std::size_t bytes, std::size_t alignment,
                                              DeviceAddress hint) {
  return try_create(driver, bytes, alignment, hint).value();
}

DeviceAddress AddressReservation::address() const noexcept {
  return state_ ? state_->address : DeviceAddress();
}

std::size_t AddressReservation::size() const noexcept {
  return state_ ? state_->size : 0;
}

const Driver& AddressReservation::driver() const {
  return owned(state_, "AddressReservation::driver", "reservation").driver;
}

AddressReservation AddressReservation::adopt(const Driver& driver, DeviceAddress address, std::size_t bytes) {
  if (address.value == 0 || bytes == 0)
    raise(invalid_use("AddressReservation::adopt", fmt::format("address = {:#x}, bytes = {}", address.value, bytes),
                      "Neither the address nor the size of a reservation is 0",
                      "Pass what cuMemAddressReserve returned and was asked for", "FREE-WHOLE-RESERVATION"));
  auto state = std::make_shared<State>(driver, bytes);
  state->address = address;
  state->owned = true;
  return AddressReservation(std::move(state));
}

void AddressReservation::require_no_mapping(std::string_view function) const {
  if (!state_) raise(owns_nothing(function, "reservation"));
  const long mappings = state_.use_count() - 1;
  if (mappings > 0)
    raise(invalid_use(function, fmt::format("address = {:#x}, size = {}", state_->address.value, state_->size),
                      fmt::format("{} mapping{} left in the range", mappings, mappings == 1 ? " is" : "s are"),
                      "Destroy or unmap the mappings first", "FREE-AFTER-UNMAP"));
}

DeviceAddress AddressReservation::give_out() {
  require_no_mapping("AddressReservation::give_out");
  const DeviceAddress address = state_->address;
  state_->owned = false;
  state_.reset();
  return address;
}

void AddressReservation::free() {
  require_no_mapping("AddressReservation::free");
  const Result<void> freed =
      try_call<EntryPoint::cuMemAddressFree>(state_->driver.interface(), state_->address.value, state_->size);
  if (!freed) raise(with_freeing_told(freed.failure(), state_->driver, state_->address, state_->size));
  state_->owned = false;
  state_.reset();
}

}  // namespace cuvmm
