// Takes away the process's last descriptors, as a program with too many open files finds itself.
#pragma once

namespace cuvmm::conformance {

// From here on opening any descriptor fails with EMFILE in this process; open ones stay usable.
void allow_no_more_descriptors();

}  // namespace cuvmm::conformance
