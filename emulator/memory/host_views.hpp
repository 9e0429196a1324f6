// Host memory mapped at its device addresses, for processors that were granted access.
#pragma once

#include <cstdint>
#include <map>

#include "emulator/memory/bytes.hpp"
#include "emulator/model/rights.hpp"

namespace cuvmm::emulator::memory {

// The parts of the device's address range that the process's own code may touch: a view appears with the first right
// granted to the host and goes with the last. Not thread-safe.
class HostViews {
 public:
  HostViews() = default;
  HostViews(const HostViews&) = delete;
  HostViews& operator=(const HostViews&) = delete;
  ~HostViews();

  // Makes the piece's bytes appear at `address` with these rights, or disappear where there are none. Answers false,
  // with errno set and nothing changed, if the operating system refuses or if something else is mapped there. Throws
  // std::bad_alloc.
  [[nodiscard]] bool set(std::uint64_t address, const Piece& piece, abi::CUmemAccess_flags rights);
  // The same without rights.
  bool remove(std::uint64_t address) noexcept;

 private:
  std::map<std::uint64_t, std::size_t> views_;  // address -> bytes
};

}  // namespace cuvmm::emulator::memory
