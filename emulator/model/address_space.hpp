// Device addresses: which are reserved, and where there is room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

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

  // Gives back a piece that take() answered, whole.
  void give_back(CUdeviceptr address, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t largest_free_piece() const;
  [[nodiscard]] std::uint64_t total_bytes() const { return bytes_; }
  [[nodiscard]] bool contains(CUdeviceptr address) const { return address >= base_ && address - base_ < bytes_; }

 private:
  void carve(std::map<CUdeviceptr, std::uint64_t>::iterator piece, CUdeviceptr address, std::uint64_t bytes);

  CUdeviceptr base_;
  std::uint64_t bytes_;
  std::map<CUdeviceptr, std::uint64_t> free_;  // address -> bytes; no two adjacent
};

}  // namespace cuvmm::emulator::model
