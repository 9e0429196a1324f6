#include "mapping_refusal.hpp"

#include <fmt/format.h>

#include <optional>

#include "cuvmm/physical_memory.hpp"
#include "pointer_query.hpp"

namespace cuvmm {

namespace {

void tell(Failure& failure, std::string_view rule_id, std::string rule, std::string way_out) {
  failure.rule_ids = rule_id;
  failure.rule = std::move(rule);
  failure.way_out = std::move(way_out);
}

// The unit of mappings: what is mapped begins and ends with one.
std::size_t unit_of(const Driver& driver, const MemoryProperties& memory) {
  return PhysicalMemory::granularity(driver, memory);
}

// The first mapping that the bytes touch; nothing if they touch none.
std::optional<PointerFacts> mapped_in(const Driver& driver, DeviceAddress address, std::size_t bytes,
                                      std::size_t unit) {
  for (std::size_t at = 0; at < bytes; at += unit) {
    const auto facts = query_pointer(driver, address + at);
    if (!facts) raise(facts.failure());
    if (facts->known()) return *facts;
  }
  return std::nullopt;
}

}  // namespace

Failure with_mapping_told(Failure failure, const Driver& driver, const MemoryProperties& memory, DeviceAddress reserved,
                          std::size_t offset, std::size_t bytes) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE) return failure;
  const std::size_t unit = unit_of(driver, memory);
  if (!is_aligned(offset, unit)) {
    tell(failure, "MAP-ADDRESS-ALIGNED",
         fmt::format("The offset, {} bytes, must be a multiple of the granularity, {} bytes ({})", offset, unit,
                     format_bytes(unit)),
         fmt::format("Map at {}, or another multiple: cuvmm::align_up(offset, granularity)", offset / unit * unit));
  } else if (const auto mapped = mapped_in(driver, reserved + offset, bytes, unit)) {
    tell(failure, "MAP-FREE-ADDRESSES",
         fmt::format("Something is mapped there: {} at {:#x}", format_bytes(mapped->size), mapped->base.value),
         "Unmap it first, or map at another offset");
  } else {
    tell(failure, "MAP-IN-RESERVATION", "The driver has no reservation there: other code has freed it",
         "Let the owner of the addresses free them, and it alone");
  }
  return failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

Failure with_unmapping_told(Failure failure, const Driver& driver, DeviceAddress address, std::size_t bytes) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE) return failure;
  const auto facts = query_pointer(driver, address);
  if (!facts) return failure;
  if (facts->known() && (facts->base != address || facts->size > bytes))
    tell(
        failure, "UNMAP-WHOLE-MAPPINGS",
        fmt::format("What is mapped there is {} at {:#x}, by other code", format_bytes(facts->size), facts->base.value),
        "Let the owner of the addresses alone map and unmap there");
  else if (!facts->known())
    tell(failure, "UNMAP-IN-RESERVATION",
         "Nothing is mapped there, and nothing is reserved: other code has unmapped it",
         "Let the owner of the mapping unmap it, and it alone");
  return failure;
} catch (const Error&) {
  return failure;
}

Failure with_freeing_told(Failure failure, const Driver& driver, DeviceAddress address, std::size_t bytes) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_VALUE) return failure;
  const auto mapped = mapped_in(driver, address, bytes, unit_of(driver, {}));
  if (mapped)
    tell(failure, "FREE-AFTER-UNMAP",
         fmt::format("Other code has mapped something there: {} at {:#x}", format_bytes(mapped->size),
                     mapped->base.value),
         "Unmap everything in the range first");
  else
    tell(failure, "FREE-WHOLE-RESERVATION", "The driver has no reservation of exactly this address and size",
         "Pass to AddressReservation::adopt what was reserved, and let the owner alone free it");
  return failure;
} catch (const Error&) {
  return failure;
}

}  // namespace cuvmm
