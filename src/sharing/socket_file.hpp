// The files of sockets, in directories of one user's own.
#pragma once

#include <string>

#include "cuvmm/result.hpp"
#include "cuvmm/sharing/deadline.hpp"
#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

// The directory of that path, locked against others who make or remove sockets there, as long as it is open. It is made
// if it is missing, and has to be this user's and open to nobody else.
[[nodiscard]] Result<UniqueDescriptor> lock_directory_of(const std::string& path, const Deadline& deadline);

// The same without waiting and without making it; none if that is not possible.
[[nodiscard]] UniqueDescriptor try_lock_directory_of(const std::string& path) noexcept;

}  // namespace cuvmm::sharing
