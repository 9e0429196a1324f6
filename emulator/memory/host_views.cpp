#include "emulator/memory/host_views.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "emulator/memory/unmapping.hpp"

namespace cuvmm::emulator::memory {

HostViews::~HostViews() {
  for (const auto& [address, bytes] : views_) unmap(reinterpret_cast<void*>(address), bytes);
}

bool HostViews::set(std::uint64_t address, const Piece& piece, abi::CUmemAccess_flags rights) {
  if (rights == abi::CU_MEM_ACCESS_FLAGS_PROT_NONE) return remove(address);
  void* place = reinterpret_cast<void*>(address);
  const int protection = rights == abi::CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE;
  auto [view, added] = views_.try_emplace(address, piece.bytes);
  if (!added) return ::mprotect(place, view->second, protection) == 0;
  void* mapped = piece.file->map(place, piece.bytes, protection, MAP_FIXED_NOREPLACE, piece.offset);
  if (mapped == place) return true;
  if (mapped != MAP_FAILED) {  // a kernel that takes the address as a hint only
    unmap(mapped, piece.bytes);
    errno = EEXIST;
  }
  views_.erase(view);
  return false;
}

bool HostViews::remove(std::uint64_t address) noexcept {
  auto view = views_.find(address);
  if (view == views_.end()) return true;
  if (!unmap(reinterpret_cast<void*>(address), view->second)) return false;
  views_.erase(view);
  return true;
}

}  // namespace cuvmm::emulator::memory
