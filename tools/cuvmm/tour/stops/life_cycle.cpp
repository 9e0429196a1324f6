// 4.16.2: the life of physical memory and of its address, step by step, with the rules shown by breaking them.
#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "driver/call.hpp"
#include "tour/content_checksum.hpp"
#include "tour/device_memory.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;
using namespace abi;

// One allocation, one reservation, one mapping. Each step makes its checks; the destructor gives back what a step that
// failed left behind.
class LifeCycle {
 public:
  explicit LifeCycle(Visit& visit)
      : visit_(visit), driver_(*visit.driver), gpu_(*visit.gpus.front()), properties_(device_memory(gpu_)) {}
  LifeCycle(const LifeCycle&) = delete;
  LifeCycle& operator=(const LifeCycle&) = delete;
  ~LifeCycle() {
    if (mapped_) driver_.cuMemUnmap(range_, size_);
    if (created_) driver_.cuMemRelease(memory_);
    if (reserved_) driver_.cuMemAddressFree(range_, size_);
  }

  // 1. The granularity: every size is a multiple of it. At least two granules, so that there are parts.
  void choose_size() {
    granule_ = granularity(driver_, properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    size_ = window_bytes(visit_.input.size(), granule_, gpu_.free_memory());
    visit_.shown = fmt::format("{} bytes in whole granules of {}, from creation to the end", with_separators(size_),
                               with_separators(granule_));
  }

  // 2. Physical memory.
  void create() {
    CUmemGenericAllocationHandle unwanted = 0;
    const CUresult unaligned = driver_.cuMemCreate(&unwanted, size_ + 1, &properties_, 0);
    if (unaligned == CUDA_SUCCESS) driver_.cuMemRelease(unwanted);
    require_refused(visit_.checks, unaligned, "creating memory that is no multiple of the granularity");
    const std::uint64_t free_before = gpu_.free_memory();
    const CUresult aligned = driver_.cuMemCreate(&memory_, size_, &properties_, 0);
    created_ = aligned == CUDA_SUCCESS;
    require_accepted(visit_.checks, aligned, "creating whole granules");
    const std::uint64_t free_after = gpu_.free_memory();
    visit_.checks.require(free_before >= free_after + size_, "creating memory takes it from the device's free memory",
                          fmt::format("{} bytes were free before, {} after", free_before, free_after));
  }

  // 3. An address for it.
  void reserve() {
    CUdeviceptr unwanted = 0;
    const CUresult unaligned = driver_.cuMemAddressReserve(&unwanted, size_ + 1, 0, 0, 0);
    if (unaligned == CUDA_SUCCESS) driver_.cuMemAddressFree(unwanted, size_ + 1);
    require_refused(visit_.checks, unaligned, "reserving addresses that are no multiple of the granularity");
    const CUresult aligned = driver_.cuMemAddressReserve(&range_, size_, 0, 0, 0);
    reserved_ = aligned == CUDA_SUCCESS;
    require_accepted(visit_.checks, aligned, "reserving whole granules of addresses");
  }

  // 4. The memory at the address.
  void map() {
    const CUresult part = driver_.cuMemMap(range_, granule_, 0, memory_, 0);
    if (part == CUDA_SUCCESS) driver_.cuMemUnmap(range_, granule_);
    require_refused(visit_.checks, part, "mapping a part of an allocation");
    const CUresult whole = driver_.cuMemMap(range_, size_, 0, memory_, 0);
    mapped_ = whole == CUDA_SUCCESS;
    require_accepted(visit_.checks, whole, "mapping the whole allocation");
  }

  // 5. The right to touch it.
  void set_access() {
    const CUmemAccessDesc access = rights_of(gpu_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    require_refused(visit_.checks, driver_.cuMemSetAccess(range_, granule_, &access, 1),
                    "setting access for a part of a mapping");
    require_accepted(visit_.checks, driver_.cuMemSetAccess(range_, size_, &access, 1),
                     "setting access for the whole mapping");
  }

  // 6. The use of it: in by a copy, looked at by a kernel, and out by a copy.
  void move_input() {
    std::uint64_t seen_by_kernel = 0;
    ContentChecksum read_back;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      call<EntryPoint::cuMemcpyHtoD>(driver_, range_, static_cast<const void*>(piece.data()), piece.size());
      seen_by_kernel += gpu_.checksum(range_, piece.size(), offset / gpu::checksum_word_bytes);
      std::fill(piece.begin(), piece.end(), std::byte{0});
      call<EntryPoint::cuMemcpyDtoH>(driver_, static_cast<void*>(piece.data()), range_, piece.size());
      read_back.add(piece);
    });
    require_checksum(seen_by_kernel, "a kernel sees the input in the mapped memory");
    require_checksum(read_back.value(), "the input is read back from the mapped memory");
  }

  // 7. The mapping's end.
  void unmap() {
    require_refused(visit_.checks, driver_.cuMemAddressFree(range_, size_), "freeing addresses with a live mapping");
    require_refused(visit_.checks, driver_.cuMemUnmap(range_, granule_), "unmapping a part of a mapping");
    const CUresult whole = driver_.cuMemUnmap(range_, size_);
    mapped_ = whole != CUDA_SUCCESS;
    require_accepted(visit_.checks, whole, "unmapping the whole mapping");
    const unsigned char byte = 1;
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(range_, &byte, 1), "a copy to addresses that were unmapped");
  }

  // 8. The memory's end.
  void release() {
    const std::uint64_t free_before = gpu_.free_memory();
    const CUresult released = driver_.cuMemRelease(memory_);
    created_ = released != CUDA_SUCCESS;
    require_accepted(visit_.checks, released, "releasing the memory");
    visit_.checks.require(
        comes_back(free_before), "released memory comes back to the device's free memory",
        fmt::format("{} bytes were free before and {} after, of {} released", free_before, gpu_.free_memory(), size_));
  }

  // 9. The address's end.
  void free_addresses() {
    require_refused(visit_.checks, driver_.cuMemAddressFree(range_, granule_), "freeing a part of a reservation");
    const CUresult whole = driver_.cuMemAddressFree(range_, size_);
    reserved_ = whole != CUDA_SUCCESS;
    require_accepted(visit_.checks, whole, "freeing the whole reservation");
  }

 private:
  void require_checksum(std::uint64_t seen, const std::string& what) {
    visit_.checks.require(seen == visit_.checksum, fmt::format("{}: its checksum is {:016x}", what, visit_.checksum),
                          fmt::format("it is {:016x}", seen));
  }

  // Whether the device has that much more free memory than before. Others may use the device too, and a driver may
  // take a moment: so it is asked several times.
  bool comes_back(std::uint64_t free_before) const {
    for (int attempt = 0; attempt < 20; ++attempt) {
      if (gpu_.free_memory() >= free_before + size_) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return false;
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  CUmemAllocationProp properties_;
  std::size_t granule_ = 0;
  std::size_t size_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr range_ = 0;
  bool created_ = false;
  bool reserved_ = false;
  bool mapped_ = false;
};

void visit_life_cycle(Visit& visit) {
  require_virtual_memory_and_kernels(*visit.gpus.front());
  visit.gpus.front()->make_current();
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
