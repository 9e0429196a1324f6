// Whether this process is a forked child of the one in which something was made.
#pragma once

namespace cuvmm::emulator::api {

// How many forks lie between this process and the one that asked first: a driver made at another count was made in an
// ancestor. Makes no system call after the first time.
[[nodiscard]] unsigned fork_count();

}  // namespace cuvmm::emulator::api
