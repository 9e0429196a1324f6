// 4.16.3.5: giving back: in every order that is legal, until the memory is the device's again; and never from under a
// kernel that runs.
#include <fmt/core.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "clean_up.hpp"
#include "cuvmm/access_grant.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"
#include "tour/stops/last_user.hpp"
#include "tour/unmap_probe.hpp"

namespace cuvmm::tour {
namespace {

using abi::CUmemGenericAllocationHandle;
using driver::call;
using driver::EntryPoint;

// A descriptor of memory, closed at the end.
class ExportedMemory {
 public:
  ExportedMemory(driver::Interface& driver, const PhysicalMemory& memory) {
    call<EntryPoint::cuMemExportToShareableHandle>(driver, static_cast<void*>(&descriptor_), memory.handle(),
                                                   abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL);
  }
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;
  ExportedMemory(ExportedMemory&&) = delete;
  ExportedMemory& operator=(ExportedMemory&&) = delete;
  ~ExportedMemory() { close(); }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// The memory of a descriptor, mapped and granted to one device by hand, and given back at the end.
class ImportedMapping {
 public:
  ImportedMapping(driver::Interface& driver, int descriptor, const AddressReservation& range, const Location& location)
      : driver_(driver), address_(range.address().value), size_(range.size()) {
    call<EntryPoint::cuMemImportFromShareableHandle>(driver_, &handle_,
                                                     reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                                     abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const CUmemGenericAllocationHandle handle = handle_;
    const abi::CUresult mapped = driver_.cuMemMap(address_, size_, 0, handle, 0);
    clean_up<EntryPoint::cuMemRelease>(driver_, handle);  // the mapping keeps it
    if (mapped != abi::CUDA_SUCCESS)
      raise(driver::describe_failure(driver_, EntryPoint::cuMemMap, mapped, "of imported memory", {}));
    const abi::CUmemAccessDesc access = driver::to_abi(AccessGrant{location, AccessRights::read_write});
    granted_ = driver_.cuMemSetAccess(address_, size_, &access, 1);
  }
  ImportedMapping(const ImportedMapping&) = delete;
  ImportedMapping& operator=(const ImportedMapping&) = delete;
  ImportedMapping(ImportedMapping&&) = delete;
  ImportedMapping& operator=(ImportedMapping&&) = delete;
  ~ImportedMapping() { clean_up<EntryPoint::cuMemUnmap>(driver_, address_, size_); }

  [[nodiscard]] abi::CUresult granted() const noexcept { return granted_; }

 private:
  driver::Interface& driver_;
  abi::CUdeviceptr address_;
  std::size_t size_;
  CUmemGenericAllocationHandle handle_ = 0;
  abi::CUresult granted_ = abi::CUDA_SUCCESS;
};

class ReleaseTour {
 public:
  ReleaseTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        small_(2 * gpu.device().granularity()),
        size_(window_bytes(visit.input.size(), gpu.device().granularity(), gpu.free_memory())),
        sample_(sample_of_input(visit.input, small_)) {
    ContentChecksum checksum;
    checksum.add(sample_);
    sample_checksum_ = checksum.value();
  }
  ReleaseTour(const ReleaseTour&) = delete;
  ReleaseTour& operator=(const ReleaseTour&) = delete;
  ~ReleaseTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // The handle, then the mapping. In between the input goes through memory that has no handle any more.
  void handle_before_mapping() {
    memory_.emplace(PhysicalMemory::create(visit_.driver, {gpu_.location()}, size_));
    map(first_);
    require_kept(size_, "memory whose handle is released stays as long as it is mapped", [&] { memory_->release(); });
    std::uint64_t seen = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      copy_bytes_to_device(*first_, 0, piece);
      seen += gpu_.checksum(first_->address().value, piece.size(), offset / cuvmm::gpu::checksum_word_bytes);
    });
    require_checksum(visit_, seen, "a kernel sees the input in mapped memory whose handle is released");
    require_given_back(size_, "first the handle, then the mapping: the memory comes back", [&] { first_->unmap(); });
    free_after_first_ = gpu_.free_memory();
  }

  // The mapping, then the handle. In between the memory has no address, and keeps its bytes.
  void mapping_before_handle() {
    create({gpu_.location()});
    map(first_);
    copy_bytes_to_device(*first_, 0, sample_);
    require_kept(small_, "memory that is mapped nowhere stays as long as its handle", [&] { first_->unmap(); });
    map(first_);
    require_sample(first_->address(), "and keeps its bytes until it is mapped again");
    first_->unmap();
    require_given_back(small_, "first the mapping, then the handle: the memory comes back",
                       [&] { memory_->release(); });
  }

  // Handle, mapping and addresses go, and a descriptor keeps the memory.
  void descriptor_last() {
    constexpr auto statement = "memory stays as long as a descriptor of it is open";
    if (!gpu_.device().supports_handle_type(HandleType::posix_file_descriptor)) {
      visit_.checks.leave_out(statement, "the device has no descriptors");
      return;
    }
    create({.location = gpu_.location(), .handle_types = HandleType::posix_file_descriptor});
    map(first_);
    copy_bytes_to_device(*first_, 0, sample_);
    ExportedMemory exported(driver_, *memory_);
    require_kept(small_, statement, [&] {
      memory_->release();
      first_.reset();
    });
    {
      const auto range = AddressReservation::create(visit_.driver, small_);
      const ImportedMapping imported(driver_, exported.descriptor(), range, gpu_.location());
      require_accepted(visit_.checks, imported.granted(), "setting access for memory that was imported");
      require_sample(range.address(), "and what is imported from the descriptor has its bytes");
    }
    require_given_back(small_, "with the descriptor closed the memory comes back", [&] { exported.close(); });
  }

  // The owner of the addresses goes before the mapping in them.
  void addresses_before_mapping() {
    create({gpu_.location()});
    std::optional<AddressReservation> range(AddressReservation::create(visit_.driver, small_));
    const DeviceAddress address = range->address();
    first_.emplace(Mapping::create(*range, 0, *memory_));
    grant(*first_, gpu_.location(), AccessRights::read_write);
    bool refused = false;
    try {
      range->free();
    } catch (const InvalidUse&) {
      refused = true;
    }
    visit_.checks.require(refused, "freeing addresses with a mapping in them is refused by their owner");
    range.reset();
    copy_bytes_to_device(*first_, 0, sample_);
    require_sample(address, "a mapping keeps its addresses when their owner is gone");
    first_->unmap();
    require_refused(visit_.checks, driver_.cuMemAddressFree(address.value, small_), {abi::CUDA_ERROR_INVALID_VALUE},
                    "freeing addresses that went with their last mapping");
    require_given_back(small_, "first the addresses' owner, then the mapping, then the handle: the memory comes back",
                       [&] { memory_->release(); });
  }

  // One memory at two addresses: each mapping keeps it.
  void aliases() {
    create({gpu_.location()});
    map(first_);
    map(second_);
    memory_->release();
    copy_bytes_to_device(*second_, 0, sample_);
    first_->unmap();
    require_sample(second_->address(), "memory that lies at two addresses stays when the one is unmapped");
    require_given_back(small_, "with the last mapping the memory comes back", [&] { second_->unmap(); });
  }

  // Page tables apart, the device has as much free memory as after the first order.
  void nothing_is_left() {
    require_comes_back(visit_, gpu_, free_after_first_ - small_ + 1, 0,
                       "after all orders none of the memories is missing");
  }

  void running_kernel() {
    const UnmapAnswer answer =
        run_in_child(UnmapProbe{visit_.choice, static_cast<int>(visit_.gpus.size()), visit_.input.path()});
    visit_.checks.require(answer.waited, "unmapping a range waits for the kernel that uses it",
                          "it came back while the kernel was running");
    require_accepted(visit_.checks, answer.kernel, "what the kernel did with the range meanwhile");
    ContentChecksum expected;
    expected.add(sample_of_input(visit_.input, std::min<std::uint64_t>(visit_.input.size(), unmap_probe_bytes)));
    visit_.checks.require(answer.checksum == expected.value(), "the kernel has read the right bytes",
                          fmt::format("their checksum is {:016x}", answer.checksum));
    require_refused(visit_.checks, answer.touched_after, {abi::CUDA_ERROR_INVALID_VALUE},
                    "a copy to the range after that");
  }

 private:
  void create(const MemoryProperties& properties) {
    memory_.emplace(PhysicalMemory::create(visit_.driver, properties, small_));
  }

  // Maps the memory at new addresses and grants them to the device.
  void map(std::optional<Mapping>& mapping) {
    mapping.emplace(Mapping::create(AddressReservation::create(visit_.driver, memory_->size()), 0, *memory_));
    grant(*mapping, gpu_.location(), AccessRights::read_write);
  }

  void require_sample(DeviceAddress address, const std::string& what) {
    const std::uint64_t seen = gpu_.checksum(address.value, small_, 0);
    visit_.checks.require(seen == sample_checksum_, what, fmt::format("their checksum is {:016x}", seen));
  }

  // After `act` the device has not these bytes more free than before it.
  template <typename Act>
  void require_kept(std::size_t bytes, const std::string& what, Act act) {
    const std::uint64_t before = gpu_.free_memory();
    act();
    const std::uint64_t after = gpu_.free_memory();
    visit_.checks.require(after < before + bytes, what,
                          fmt::format("{} bytes were free before, {} after", before, after));
  }

  // After `act` it has.
  template <typename Act>
  void require_given_back(std::size_t bytes, const std::string& what, Act act) {
    const std::uint64_t before = gpu_.free_memory();
    act();
    require_comes_back(visit_, gpu_, before, bytes, what);
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  // A driver takes memory for page tables as well, as much as a granule at a time: two can be told from that.
  std::size_t small_;
  std::size_t size_;
  std::vector<std::byte> sample_;
  std::uint64_t sample_checksum_ = 0;
  std::uint64_t free_after_first_ = 0;
  std::optional<PhysicalMemory> memory_;
  std::optional<Mapping> first_;
  std::optional<Mapping> second_;
};

void visit_release(Visit& visit) {
  Gpu& gpu = require_first_gpu(visit);
  ReleaseTour release(visit, gpu);
  release.handle_before_mapping();
  release.mapping_before_handle();
  release.descriptor_last();
  release.addresses_before_mapping();
  release.aliases();
  release.nothing_is_left();
  show_last_user(visit, gpu);
  release.running_kernel();
}

}  // namespace

Stop release_stop() {
  return {"4.16.3.5", "Release", "every legal order, until the memory is back; unmapping waits for a running kernel",
          visit_release};
}

}  // namespace cuvmm::tour
