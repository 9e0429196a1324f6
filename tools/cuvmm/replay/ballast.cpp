#include "replay/ballast.hpp"

#include <fmt/format.h>

#include "command/input_error.hpp"
#include "cuvmm/units.hpp"
#include "driver/call.hpp"

namespace cuvmm::replay {
namespace {

using driver::call;
using driver::EntryPoint;

std::uint64_t free_bytes(const Driver& driver) {
  std::size_t free = 0, total = 0;
  call<EntryPoint::cuMemGetInfo>(driver.interface(), &free, &total);
  return free;
}

}  // namespace

Ballast::Ballast(const Driver& driver, std::uint64_t leave_bytes) : driver_(driver) {
  const std::uint64_t free = free_bytes(driver);
  if (free < leave_bytes)
    throw command::InputError(
        fmt::format("A limit of {} cannot be kept, since {} are free: name less, or leave it out.",
                    format_bytes(leave_bytes), format_bytes(free)));
  constexpr std::uint64_t unit = 2_MiB;
  if (const std::uint64_t taken = (free - leave_bytes) / unit * unit; taken != 0)
    call<EntryPoint::cuMemAlloc>(driver_.interface(), &address_, taken);
  left_ = free_bytes(driver);
}

Ballast::~Ballast() {
  if (address_ != 0) driver_.interface().cuMemFree(address_);
}

}  // namespace cuvmm::replay
