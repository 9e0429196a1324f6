// 4.16.2: the life of physical memory and of its address, step by step, with the rules shown by breaking them.
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "command/words.hpp"
#include "cuvmm/access_grant.hpp"
#include "cuvmm/address_reservation.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapping.hpp"
#include "cuvmm/physical_memory.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using namespace abi;

// One allocation, one reservation, one mapping. Each step breaks its rule first, past the library, which would not let
// it; then it does the same rightly, with the library.
class LifeCycle {
 public:
  explicit LifeCycle(Visit& visit)
      : visit_(visit), driver_(visit.driver.interface()), gpu_(*visit.gpus.front()), properties_{gpu_.location()} {}
  LifeCycle(const LifeCycle&) = delete;
  LifeCycle& operator=(const LifeCycle&) = delete;
  ~LifeCycle() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // 1. The granularity: every size is a multiple of it. At least two granules, so that there are parts.
  void choose_size() {
    granule_ = PhysicalMemory::granularity(visit_.driver, properties_);
    size_ = window_bytes(visit_.input.size(), granule_, gpu_.free_memory());
    visit_.shown = fmt::format("{} bytes in whole granules of {}, from creation to the end",
                               command::with_separators(size_), command::with_separators(granule_));
  }

  // 2. Physical memory.
  void create() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_.ordinal()};
    CUmemGenericAllocationHandle unwanted = 0;
    const CUresult unaligned = driver_.cuMemCreate(&unwanted, size_ + 1, &properties, 0);
    if (unaligned == CUDA_SUCCESS) driver_.cuMemRelease(unwanted);
    require_refused(visit_.checks, unaligned, {CUDA_ERROR_INVALID_VALUE},
                    "creating memory that is no multiple of the granularity");

    const std::uint64_t free_before = gpu_.free_memory();
    memory_ = require_accepted(visit_.checks, "creating whole granules",
                               [&] { return PhysicalMemory::create(visit_.driver, properties_, size_); });
    const std::uint64_t free_after = gpu_.free_memory();
    visit_.checks.require(free_before >= free_after + size_, "creating memory takes it from the device's free memory",
                          fmt::format("{} bytes were free before, {} after", free_before, free_after));
  }

  // 3. Addresses for it.
  void reserve() {
    CUdeviceptr unwanted = 0;
    const CUresult unaligned = driver_.cuMemAddressReserve(&unwanted, size_ + 1, 0, 0, 0);
    if (unaligned == CUDA_SUCCESS) driver_.cuMemAddressFree(unwanted, size_ + 1);
    require_refused(visit_.checks, unaligned, {CUDA_ERROR_INVALID_VALUE},
                    "reserving addresses that are no multiple of the granularity");
    range_ = require_accepted(visit_.checks, "reserving whole granules of addresses",
                              [&] { return AddressReservation::create(visit_.driver, size_); });
    address_ = range_->address().value;
  }

  // 4. The memory at the addresses.
  void map() {
    const CUresult part = driver_.cuMemMap(address_, granule_, 0, memory_->handle(), 0);
    if (part == CUDA_SUCCESS) driver_.cuMemUnmap(address_, granule_);
    require_refused(visit_.checks, part, {CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_VALUE},
                    "mapping a part of an allocation");
    mapping_ = require_accepted(visit_.checks, "mapping the whole allocation",
                                [&] { return Mapping::create(*range_, 0, *memory_); });
  }

  // 5. The right to touch it.
  void set_access() {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, gpu_.ordinal()}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    require_refused(visit_.checks, driver_.cuMemSetAccess(address_, granule_, &access, 1), {CUDA_ERROR_INVALID_VALUE},
                    "setting access for a part of a mapping");
    require_accepted(visit_.checks, "setting access for the whole mapping",
                     [&] { grant(*mapping_, gpu_.location(), AccessRights::read_write); });
  }

  // 6. The use of it: in by a copy, looked at by a kernel, and out by a copy.
  void move_input() {
    std::uint64_t seen_by_kernel = 0;
    ContentChecksum read_back;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      copy_bytes_to_device(*mapping_, 0, piece);
      seen_by_kernel += gpu_.checksum(address_, piece.size(), offset / cuvmm::gpu::checksum_word_bytes);
      std::fill(piece.begin(), piece.end(), std::byte{0});
      copy_bytes_from_device(piece, *mapping_, 0);
      read_back.add(piece);
    });
    require_checksum(visit_, seen_by_kernel, "a kernel sees the input in the mapped memory");
    require_checksum(visit_, read_back.value(), "the input is read back from the mapped memory");
  }

  // 7. The mapping's end.
  void unmap() {
    require_refused(visit_.checks, driver_.cuMemAddressFree(address_, size_), {CUDA_ERROR_INVALID_VALUE},
                    "freeing addresses with a live mapping");
    require_refused(visit_.checks, driver_.cuMemUnmap(address_, granule_), {CUDA_ERROR_INVALID_VALUE},
                    "unmapping a part of a mapping");
    require_accepted(visit_.checks, "unmapping the whole mapping", [&] { mapping_->unmap(); });
    const unsigned char byte = 1;
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(address_, &byte, 1), {CUDA_ERROR_INVALID_VALUE},
                    "a copy to addresses that were unmapped");
  }

  // 8. The memory's end. That it comes back is for 4.16.3.5 to see.
  void release() {
    require_accepted(visit_.checks, "releasing the memory", [&] { memory_->release(); });
  }

  // 9. The addresses' end.
  void free_addresses() {
    require_refused(visit_.checks, driver_.cuMemAddressFree(address_, granule_), {CUDA_ERROR_INVALID_VALUE},
                    "freeing a part of a reservation");
    require_accepted(visit_.checks, "freeing the whole reservation", [&] { range_->free(); });
  }

 private:
  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  MemoryProperties properties_;
  std::size_t granule_ = 0;
  std::size_t size_ = 0;
  std::optional<PhysicalMemory> memory_;
  std::optional<AddressReservation> range_;
  std::optional<Mapping> mapping_;
  CUdeviceptr address_ = 0;
};

void visit_life_cycle(Visit& visit) {
  static_cast<void>(require_first_gpu(visit));
  LifeCycle life(visit);
  life.choose_size();
  life.create();
  life.reserve();
  life.map();
  life.set_access();
  life.move_input();
  life.unmap();
  life.release();
  life.free_addresses();
}

}  // namespace

Stop life_cycle_stop() {
  return {"4.16.2", "Life cycle", "create, reserve, map, set access, use, unmap, release, free, and their rules",
          visit_life_cycle};
}

}  // namespace cuvmm::tour
