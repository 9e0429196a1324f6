// 4.16.3.4: who may touch a mapping: nobody at first, then as granted, changed and revoked.
#include <fmt/core.h>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapping.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"
#include "tour/access_probe.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using abi::CUresult;

constexpr auto none = AccessRights::none;
constexpr auto read_only = AccessRights::read;
constexpr auto read_write = AccessRights::read_write;

class AccessTour {
 public:
  explicit AccessTour(Visit& visit)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(*visit.gpus.front()),
        size_(window_bytes(visit.input.size(), gpu_.device().granularity(), gpu_.free_memory())),
        mapping_(Mapping::create(AddressReservation::create(visit.driver, size_), 0,
                                 PhysicalMemory::create(visit.driver, {gpu_.location()}, size_))),
        address_(mapping_.address().value) {}
  AccessTour(const AccessTour&) = delete;
  AccessTour& operator=(const AccessTour&) = delete;
  ~AccessTour() { gpu_.finish_work(); }  // a check that failed may have left a copy or a memset at work

  void fresh_mapping() {
    require_rights(gpu_, none, "a fresh mapping");
    require_copies_refused("a fresh mapping");
  }

  // The input goes in while it is writable, and is looked at while it is read-only.
  void read_what_was_written() {
    std::uint64_t seen = 0;
    std::uint64_t seen_after_violations = 0;
    bool first = true;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      grant(mapping_, gpu_.location(), read_write);
      copy_bytes_to_device(mapping_, 0, piece);
      grant(mapping_, gpu_.location(), read_only);
      seen += checksum(gpu_, offset, piece.size());
      if (first) try_to_write();
      seen_after_violations += checksum(gpu_, offset, piece.size());
      first = false;
    });
    if (first) {  // an empty input has no piece to do it with
      grant(mapping_, gpu_.location(), read_write);
      grant(mapping_, gpu_.location(), read_only);
      try_to_write();
    }
    require_checksum(visit_, seen, "a kernel reads the input through a read-only grant");
    require_checksum(visit_, seen_after_violations, "what was refused changed nothing");
  }

  void kernels_in_child_processes() {
    require_fault(0, {}, Touch::load, "a kernel's load from a fresh mapping");
    require_no_fault(0, {read_only}, Touch::load, "a kernel's load through a read-only grant");
    require_fault(0, {read_only}, Touch::store, "a kernel's store through a read-only grant");
    require_no_fault(0, {read_write}, Touch::store, "a kernel's store through a grant to read and write");
    require_fault(0, {read_write, none}, Touch::load, "a kernel's load after the grant was revoked");
  }

  void revoke_and_grant_again() {
    revoke(mapping_, gpu_.location());
    require_rights(gpu_, none, "a revoked grant");
    require_copies_refused("a mapping whose grant was revoked");
    grant(mapping_, gpu_.location(), read_write);
    require_rights(gpu_, read_write, "a grant given again");
    require_accepted(visit_.checks, driver_.cuMemsetD8(address_, 0, 1), "a memset after a grant given again");
    require_accepted(visit_.checks, driver_.cuCtxSynchronize(), "the wait for that memset");
  }

  // Another device gets its own rights to the same memory, and loses them without the first noticing.
  void other_device(Gpu& other) {
    if (!other.device().can_access_peer(gpu_.device())) {
      visit_.shown += fmt::format("; device {} cannot reach device {}", other.ordinal(), gpu_.ordinal());
      return;
    }
    const std::string name = fmt::format("device {}", other.ordinal());
    require_rights(other, none, name);
    grant(mapping_, other.location(), read_only);
    require_rights(other, read_only, name + ", granted to read");
    require_rights(gpu_, read_write, fmt::format("device {}, beside {}", gpu_.ordinal(), name));
    const std::uint64_t here = checksum(gpu_, 0, size_);
    visit_.checks.require(checksum(other, 0, size_) == here, name + " reads the same memory");
    require_fault(other.ordinal(), {read_only}, Touch::store, name + ": a kernel's store through a read-only grant");
    require_no_fault(other.ordinal(), {read_write}, Touch::store, name + ": a kernel's store through a grant to write");
    revoke(mapping_, other.location());
    require_rights(other, none, name + ", revoked");
    require_rights(gpu_, read_write, fmt::format("device {}, after {} lost its own", gpu_.ordinal(), name));
    require_fault(other.ordinal(), {read_write, none}, Touch::load, name + ": a kernel's load after it was revoked");
  }

 private:
  std::uint64_t checksum(Gpu& gpu, std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t sum = gpu.checksum(address_, bytes, offset / cuvmm::gpu::checksum_word_bytes);
    gpu_.make_current();
    return sum;
  }

  void try_to_write() {
    require_rights(gpu_, read_only, "a grant to read");
    unsigned char byte = 0;
    require_accepted(visit_.checks, driver_.cuMemcpyDtoH(&byte, address_, 1), "a copy out of a read-only mapping");
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(address_, &byte, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a copy into a read-only mapping");
    require_refused(visit_.checks, driver_.cuMemsetD8(address_, 0xFF, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a memset of a read-only mapping");
  }

  void require_copies_refused(const std::string& where) {
    unsigned char byte = 0;
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(address_, &byte, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a copy into " + where);
    require_refused(visit_.checks, driver_.cuMemcpyDtoH(&byte, address_, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a copy out of " + where);
  }

  void require_rights(const Gpu& gpu, AccessRights expected, const std::string& whose) {
    tour::require_rights(visit_, mapping_.address(), gpu.location(), expected, whose);
  }

  CUresult in_child(int toucher, const std::vector<AccessRights>& grants, Touch touch) const {
    AccessProbe probe{visit_.choice, static_cast<int>(visit_.gpus.size()), toucher, {}, touch};
    for (const AccessRights rights : grants) probe.grants.push_back(static_cast<int>(rights));
    return run_in_child(probe);
  }

  void require_fault(int toucher, const std::vector<AccessRights>& grants, Touch touch, const std::string& violation) {
    const CUresult result = in_child(toucher, grants, touch);
    visit_.checks.require(is_fault(result), violation + " faults",
                          fmt::format("the driver answered {}", driver::result_name(result)));
  }

  void require_no_fault(int toucher, const std::vector<AccessRights>& grants, Touch touch, const std::string& tried) {
    require_accepted(visit_.checks, in_child(toucher, grants, touch), tried);
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t size_;
  Mapping mapping_;
  abi::CUdeviceptr address_;
};

void visit_access(Visit& visit) {
  static_cast<void>(require_first_gpu(visit));
  AccessTour access(visit);
  access.fresh_mapping();
  access.read_what_was_written();
  access.kernels_in_child_processes();
  access.revoke_and_grant_again();
  for (const std::unique_ptr<Gpu>& other : visit.gpus.subspan(1)) access.other_device(*other);
}

}  // namespace

Stop access_stop() {
  return {"4.16.3.4", "Access", "no access at first; granted, read-only, revoked; each violation caught", visit_access};
}

}  // namespace cuvmm::tour
