// Device addresses: which are reserved, and where there is room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "driver/abi.hpp"

namespace cuvmm::emulator::model {

using abi::CUdeviceptr;

// A span of addresses that is handed out in aligned pieces, lowest fitting address first. Not thread-safe.
class AddressSpace {
 public:
  AddressSpace(CUdeviceptr base, std::uint64_t bytes);

  // The address of a free piece of `bytes` bytes at a multiple of `alignment` (a power of two), now taken; at `hint`
  // if that piece is free and hint is not 0. Nothing if no piece is large enough.
  [[nodiscard]] std::optional<CUdeviceptr> take(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr hint = 0);

  // Takes exactly this piece; false, and nothing taken, unless all of it is free.
  [[nodiscard]] bool take_at(CUdeviceptr address, std::uint64_t bytes);

  // Gives back a piece that take() answered or take_at() took, whole.
  void give_back(CUdeviceptr address, std::uint64_t bytes) noexcept;

  // A piece that was taken is to be given back as one piece more.
  void divide();

  // How much is free before and behind all that is taken.
  [[nodiscard]] std::uint64_t free_at_begin() const;
  [[nodiscard]] std::uint64_t free_at_end() const;
  [[nodiscard]] std::uint64_t largest_free_piece() const;
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_; }
  [[nodiscard]] CUdeviceptr end() const { return base_ + bytes_; }
  [[nodiscard]] bool contains(CUdeviceptr address) const { return address >= base_ && address - base_ < bytes_; }

 private:
  using Pieces = std::map<CUdeviceptr, std::uint64_t>;  // address -> bytes

  void carve(Pieces::iterator piece, CUdeviceptr address, std::uint64_t bytes);

  CUdeviceptr base_;
  std::uint64_t bytes_;
  Pieces free_;                            // no two adjacent
  std::vector<Pieces::node_type> spares_;  // one for each piece taken, so that giving back needs no memory
};

}  // namespace cuvmm::emulator::model
