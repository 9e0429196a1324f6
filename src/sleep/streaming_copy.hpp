// Copies to memory that is not read soon.
#pragma once

#include <cstddef>

namespace cuvmm::sleep {

// As std::memcpy. On x86-64 the bytes go past the caches (non-temporal stores): what they are written to need not be
// read from memory first, and what the caches hold, pinned memory that devices copy through above all, stays there. For
// many bytes that nobody reads soon; few are copied as ever. Another thread that is told of it afterwards sees them.
void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes) noexcept;

}  // namespace cuvmm::sleep
