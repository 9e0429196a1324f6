// What the operating system says of descriptors.
#pragma once

#include <string>
#include <string_view>

#include "cuvmm/result.hpp"
#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

// "a socket", "a device file", "not open": for messages about a descriptor that is not what it should be.
[[nodiscard]] std::string what_it_is(int descriptor);

// Another descriptor of the same file, close-on-exec and above 2.
[[nodiscard]] Result<UniqueDescriptor> duplicate(int descriptor);

// The same descriptor, close-on-exec; a copy of it above 2 if it is one of 0 to 2.
[[nodiscard]] Result<UniqueDescriptor> made_safe(UniqueDescriptor descriptor);

}  // namespace cuvmm::sharing
