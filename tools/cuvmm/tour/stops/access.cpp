// 4.16.3.4: who may touch a mapping: nobody at first, then as granted, changed and revoked.
#include <fmt/core.h>

#include "driver/call.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"
#include "tour/access_probe.hpp"
#include "tour/device_memory.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;
using namespace abi;

constexpr auto none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto read_only = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto read_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

// One mapped allocation that nobody has access to, given back at the end.
class MappedMemory {
 public:
  MappedMemory(driver::Interface& driver, const CUmemAllocationProp& properties, std::size_t size)
      : driver_(driver), size_(size) {
    call<EntryPoint::cuMemAddressReserve>(driver_, &range_, size, std::size_t{0}, CUdeviceptr{0}, 0ULL);
    try {
      CUmemGenericAllocationHandle memory = 0;
      call<EntryPoint::cuMemCreate>(driver_, &memory, size, &properties, 0ULL);
      const CUresult mapped = driver_.cuMemMap(range_, size, 0, memory, 0);
      driver_.cuMemRelease(memory);  // from now on the mapping alone keeps it
      if (mapped != CUDA_SUCCESS) {
        raise(driver::describe_failure(driver_, EntryPoint::cuMemMap, mapped, "", {}));
      }
    } catch (...) {
      driver_.cuMemAddressFree(range_, size_);
      throw;
    }
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    driver_.cuMemUnmap(range_, size_);
    driver_.cuMemAddressFree(range_, size_);
  }

  [[nodiscard]] CUdeviceptr address() const noexcept { return range_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // Sets the device's rights for the whole mapping.
  void grant(const Gpu& gpu, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = rights_of(gpu, flags);
    call<EntryPoint::cuMemSetAccess>(driver_, range_, size_, &access, std::size_t{1});
  }

  // The device's rights, as the driver tells them.
  [[nodiscard]] unsigned long long rights(const Gpu& gpu) const {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, gpu.device()};
    unsigned long long flags = 0;
    call<EntryPoint::cuMemGetAccess>(driver_, &flags, &location, range_);
    return flags;
  }

 private:
  driver::Interface& driver_;
  std::size_t size_;
  CUdeviceptr range_ = 0;
};

class AccessTour {
 public:
  explicit AccessTour(Visit& visit)
      : visit_(visit),
        driver_(*visit.driver),
        gpu_(*visit.gpus.front()),
        granule_(granularity(driver_, device_memory(gpu_), CU_MEM_ALLOC_GRANULARITY_MINIMUM)),
        memory_(driver_, device_memory(gpu_), window_bytes(visit.input.size(), granule_, gpu_.free_memory())) {}

  void fresh_mapping() {
    require_rights(gpu_, none, "a fresh mapping");
    require_copies_refused("a fresh mapping");
  }

  // The input goes in while it is writable, and is looked at while it is read-only.
  void read_what_was_written() {
    std::uint64_t seen = 0;
    std::uint64_t seen_after_violations = 0;
    bool first = true;
    for_each_piece(visit_, memory_.size(), [&](std::uint64_t offset, std::span<std::byte> piece) {
      memory_.grant(gpu_, read_write);
      call<EntryPoint::cuMemcpyHtoD>(driver_, memory_.address(), static_cast<const void*>(piece.data()), piece.size());
      memory_.grant(gpu_, read_only);
      seen += checksum(gpu_, offset, piece.size());
      if (first) try_to_write();
      seen_after_violations += checksum(gpu_, offset, piece.size());
      first = false;
    });
    if (first) {  // an empty input has no piece to do it with
      memory_.grant(gpu_, read_write);
      memory_.grant(gpu_, read_only);
      try_to_write();
    }
    require_checksum(seen, "a kernel reads the input through a read-only grant");
    require_checksum(seen_after_violations, "what was refused changed nothing");
  }

  void kernels_in_child_processes() {
    require_fault(0, {}, Touch::load, "a kernel's load from a fresh mapping");
    require_no_fault(0, {read_only}, Touch::load, "a kernel's load through a read-only grant");
    require_fault(0, {read_only}, Touch::store, "a kernel's store through a read-only grant");
    require_no_fault(0, {read_write}, Touch::store, "a kernel's store through a grant to read and write");
    require_fault(0, {read_write, none}, Touch::load, "a kernel's load after the grant was revoked");
  }

  void revoke() {
    memory_.grant(gpu_, none);
    require_rights(gpu_, none, "a revoked grant");
    require_copies_refused("a mapping whose grant was revoked");
    memory_.grant(gpu_, read_write);
    require_rights(gpu_, read_write, "a grant given again");
    require_accepted(visit_.checks, driver_.cuMemsetD8(memory_.address(), 0, 1), "a memset after a grant given again");
  }

  // Another device gets its own rights to the same memory, and loses them without the first noticing.
  void other_device(Gpu& other) {
    int reachable = 0;
    call<EntryPoint::cuDeviceCanAccessPeer>(driver_, &reachable, other.device(), gpu_.device());
    if (reachable == 0) {
      visit_.shown += fmt::format("; device {} cannot reach device {}", other.ordinal(), gpu_.ordinal());
      return;
    }
    const std::string name = fmt::format("device {}", other.ordinal());
    require_rights(other, none, name);
    memory_.grant(other, read_only);
    require_rights(other, read_only, name + ", granted to read");
    require_rights(gpu_, read_write, fmt::format("device {}, beside {}", gpu_.ordinal(), name));
    const std::uint64_t here = checksum(gpu_, 0, memory_.size());
    visit_.checks.require(checksum(other, 0, memory_.size()) == here, name + " reads the same memory");
    require_fault(other.ordinal(), {read_only}, Touch::store, name + ": a kernel's store through a read-only grant");
    require_no_fault(other.ordinal(), {read_write}, Touch::store, name + ": a kernel's store through a grant to write");
    memory_.grant(other, none);
    require_rights(other, none, name + ", revoked");
    require_rights(gpu_, read_write, fmt::format("device {}, after {} lost its own", gpu_.ordinal(), name));
    require_fault(other.ordinal(), {read_write, none}, Touch::load, name + ": a kernel's load after it was revoked");
  }

 private:
  std::uint64_t checksum(Gpu& gpu, std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t sum = gpu.checksum(memory_.address(), bytes, offset / cuvmm::gpu::checksum_word_bytes);
    gpu_.make_current();
    return sum;
  }

  void try_to_write() {
    require_rights(gpu_, read_only, "a grant to read");
    unsigned char byte = 0;
    require_accepted(visit_.checks, driver_.cuMemcpyDtoH(&byte, memory_.address(), 1),
                     "a copy out of a read-only mapping");
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(memory_.address(), &byte, 1),
                    "a copy into a read-only mapping");
    require_refused(visit_.checks, driver_.cuMemsetD8(memory_.address(), 0xFF, 1), "a memset of a read-only mapping");
  }

  void require_copies_refused(const std::string& where) {
    unsigned char byte = 0;
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(memory_.address(), &byte, 1), "a copy into " + where);
    require_refused(visit_.checks, driver_.cuMemcpyDtoH(&byte, memory_.address(), 1), "a copy out of " + where);
  }

  void require_rights(const Gpu& gpu, CUmemAccess_flags expected, const std::string& whose) {
    constexpr auto text = [](unsigned long long flags) {
      return flags == none ? "no access" : flags == read_only ? "read" : flags == read_write ? "read and write" : "?";
    };
    const unsigned long long rights = memory_.rights(gpu);
    visit_.checks.require(rights == static_cast<unsigned long long>(expected),
                          fmt::format("{}: the driver says {}", whose, text(static_cast<unsigned>(expected))),
                          fmt::format("it says {}", text(rights)));
  }

  CUresult in_child(int toucher, std::vector<int> grants, Touch touch) const {
    return run_in_child({visit_.choice, static_cast<int>(visit_.gpus.size()), toucher, std::move(grants), touch});
  }

  void require_fault(int toucher, std::vector<int> grants, Touch touch, const std::string& violation) {
    const CUresult result = in_child(toucher, std::move(grants), touch);
    visit_.checks.require(is_fault(result), violation + " faults",
                          fmt::format("the driver answered {}", driver::result_name(result)));
  }

  void require_no_fault(int toucher, std::vector<int> grants, Touch touch, const std::string& tried) {
    require_accepted(visit_.checks, in_child(toucher, std::move(grants), touch), tried);
  }

  void require_checksum(std::uint64_t seen, const std::string& what) {
    visit_.checks.require(seen == visit_.checksum, fmt::format("{}: the checksum is {:016x}", what, visit_.checksum),
                          fmt::format("it is {:016x}", seen));
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t granule_;
  MappedMemory memory_;
};

void visit_access(Visit& visit) {
  require_virtual_memory_and_kernels(*visit.gpus.front());
  visit.gpus.front()->make_current();
  AccessTour access(visit);
  access.fresh_mapping();
  access.read_what_was_written();
  access.kernels_in_child_processes();
  access.revoke();
  for (const std::unique_ptr<Gpu>& other : visit.gpus.subspan(1)) access.other_device(*other);
}

}  // namespace

Stop access_stop() {
  return {"4.16.3.4", "Access", "no access at first; granted, read-only, revoked; each violation caught", visit_access};
}

}  // namespace cuvmm::tour
