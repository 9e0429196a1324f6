#include "cuvmm/mapping.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "mapping_refusal.hpp"
#include "owner_states.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::EntryPoint;
using driver::try_call;

namespace {

// What the driver would not notice, or not explain.
std::optional<Failure> refusal_of(const AddressReservation& reservation, std::size_t offset,
                                  const PhysicalMemory& memory) {
  const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id = {}) {
    return invalid_use("Mapping::create",
                       fmt::format("reservation = {:#x} of {}, offset = {}, memory of {}", reservation.address().value,
                                   format_bytes(reservation.size()), offset, format_bytes(memory.size())),
                       std::move(rule), std::move(way_out), rule_id);
  };
  if (reservation.driver() != memory.driver())
    return refuse("Reservation and memory must come from the same driver", "Create both with one Driver");
  if (offset > reservation.size() || memory.size() > reservation.size() - offset)
    return refuse("A mapping must end inside its reservation; the driver itself does not check that",
                  "Reserve a larger range, or map at a smaller offset", "MAP-INSIDE-ONE-RESERVATION");
  return std::nullopt;
}

}  // namespace

Mapping::Mapping(std::shared_ptr<AddressReservation::State> reservation, std::shared_ptr<PhysicalMemory::State> memory,
                 DeviceAddress address, std::size_t size) noexcept
    : reservation_(std::move(reservation)), memory_(std::move(memory)), address_(address), size_(size) {}

Result<Mapping> Mapping::try_create(const AddressReservation& reservation, std::size_t offset,
                                    const PhysicalMemory& memory) {
  if (!reservation.state_ || !memory.state_)
    return owns_nothing("Mapping::create", reservation.state_ ? "memory" : "reservation");
  if (auto refused = refusal_of(reservation, offset, memory)) return std::move(*refused);
  const DeviceAddress address = reservation.address() + offset;
  const Result<void> mapped = try_call<EntryPoint::cuMemMap>(reservation.driver().interface(), address.value,
                                                             memory.size(), std::size_t{0}, memory.handle(), 0ULL);
  if (!mapped)
    return with_mapping_told(mapped.failure(), reservation.driver(), memory.properties(), reservation.address(), offset,
                             memory.size());
  return Mapping(reservation.state_, memory.state_, address, memory.size());
}

Mapping Mapping::create(const AddressReservation& reservation, std::size_t offset, const PhysicalMemory& memory) {
  return try_create(reservation, offset, memory).value();
}

Mapping::Mapping(Mapping&& other) noexcept
    : reservation_(std::move(other.reservation_)),
      memory_(std::move(other.memory_)),
      address_(std::exchange(other.address_, DeviceAddress())),
      size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  const Mapping previous(std::move(*this));  // unmapped at the end of this function
  reservation_ = std::move(other.reservation_);
  memory_ = std::move(other.memory_);
  address_ = std::exchange(other.address_, DeviceAddress());
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Mapping::~Mapping() {
  if (reservation_) clean_up<EntryPoint::cuMemUnmap>(reservation_->driver.interface(), address_.value, size_);
}

Location Mapping::location() const {
  return owned(memory_, "Mapping::location", "mapping").properties.location;
}

const Driver& Mapping::driver() const {
  return owned(reservation_, "Mapping::driver", "mapping").driver;
}

void Mapping::unmap() {
  if (!reservation_) raise(owns_nothing("Mapping::unmap", "mapping"));
  const Driver& driver = reservation_->driver;
  const Result<void> unmapped = try_call<EntryPoint::cuMemUnmap>(driver.interface(), address_.value, size_);
  if (!unmapped) raise(with_unmapping_told(unmapped.failure(), driver, address_, size_));
  reservation_.reset();
  memory_.reset();
  address_ = {};
  size_ = 0;
}

}  // namespace cuvmm
