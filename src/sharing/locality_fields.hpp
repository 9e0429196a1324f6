// A Locality among other fields of a message.
#pragma once

#include "cuvmm/sharing/locality.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::sharing {

void write(Writer& writer, const Locality& locality);

// Whatever the bytes are; the reader has failed where they are no Locality.
[[nodiscard]] Locality read_locality(Reader& reader);

}  // namespace cuvmm::sharing
