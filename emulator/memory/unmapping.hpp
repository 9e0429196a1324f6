// Giving address space back to the operating system.
#pragma once

#include <cstddef>

namespace cuvmm::emulator::memory {

// munmap, tried again for a moment where the kernel is short of memory. Answers whether it was done, with errno if not.
bool unmap(void* place, std::size_t bytes) noexcept;

}  // namespace cuvmm::emulator::memory
