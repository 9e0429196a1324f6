// How every command tells that fabric handles are announced and cannot be made.
#pragma once

namespace cuvmm::command {

inline constexpr const char* no_imex_channel = "no IMEX channel";  // where there is little room
inline constexpr const char* no_usable_imex_channel = "no IMEX channel that this process may use";

}  // namespace cuvmm::command
