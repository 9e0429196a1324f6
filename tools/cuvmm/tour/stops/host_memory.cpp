// 4.16.5.1: where memory lies: on the device, on the host, on a node of the host, and what the CPU may do with it.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "command/imex_words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/convert.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"
#include "tour/access_probe.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

// Memory of the host that the CPU and the first device use through one pointer, and what came of the input in it.
struct Shared {
  std::string name;
  MappedRange range;
  std::uint64_t seen_by_kernel = 0;
  ContentChecksum seen_by_cpu{};

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {range.address().as_pointer<std::byte>(), range.mapped_bytes()};
  }
};

class HostMemoryTour {
 public:
  HostMemoryTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        gpu_(gpu),
        size_(window_bytes(visit.input.size(), gpu.device().granularity(), gpu.free_memory())),
        on_device_(MappedRange::create(
            visit.driver, {.capacity = size_, .memory = {gpu.location()}, .chunks = ChunkPolicy::exact()})) {}
  HostMemoryTour(const HostMemoryTour&) = delete;
  HostMemoryTour& operator=(const HostMemoryTour&) = delete;
  ~HostMemoryTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  void device() {
    on_device_.append(size_);
    const abi::CUmemAccessDesc host = driver::to_abi(AccessGrant{Location::host(), AccessRights::read_write});
    require_refused(visit_.checks,
                    visit_.driver.interface().cuMemSetAccess(on_device_.address().value, size_, &host, 1),
                    {abi::CUDA_ERROR_INVALID_VALUE, abi::CUDA_ERROR_INVALID_DEVICE, abi::CUDA_ERROR_NOT_SUPPORTED},
                    "granting device memory to the host");
    visit_.shown = "device";
  }

  void host() {
    if (!gpu_.device().supports_host_memory()) {
      visit_.checks.leave_out("memory of the host", "the device does not offer it");
      return;
    }
    share("host", {Location::host()});
    require_cpu_faults({}, Touch::load, "the CPU's load from host memory that was not granted to it");
    require_cpu_may({AccessRights::read}, Touch::load, "the CPU's load from host memory granted to read");
    require_cpu_faults({AccessRights::read}, Touch::store, "the CPU's store to host memory granted to read");
    require_cpu_may({AccessRights::read_write}, Touch::store, "the CPU's store to host memory granted to write");
  }

  void host_numa() {
    if (!gpu_.device().supports_host_numa_memory()) {
      visit_.checks.leave_out("memory of a NUMA node of the host", "the device does not offer it");
      return;
    }
    share(fmt::format("host NUMA node {}", node()), {Location::host_numa(node())});
  }

  // Memory of the host's that devices of other machines reach as well: extended GPU memory.
  void extended() {
    constexpr auto statement = "memory of the host with fabric handles (extended GPU memory, EGM)";
    if (gpu_.device().attribute(abi::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED) == 0) {
      leave_out_extended(statement, "the device does not offer it: it takes a CPU that is joined to the GPU by NVLink");
      return;
    }
    const MemoryProperties properties{.location = Location::host_numa(node()), .handle_types = HandleType::fabric};
    const auto tried =
        PhysicalMemory::try_create(visit_.driver, properties, PhysicalMemory::granularity(visit_.driver, properties));
    if (!tried && tried.failure().code == abi::CUDA_ERROR_NOT_PERMITTED) {
      leave_out_extended(statement, fmt::format("there is {}", command::no_usable_imex_channel));
      return;
    }
    visit_.checks.require(tried.has_value(), fmt::format("{} is offered, and can be created", statement),
                          tried ? "" : tried.failure().message());
    share("EGM", properties);
  }

  // Into each memory by the CPU, and looked at by a kernel; then through device memory, from where a kernel stores it
  // to the memory again, and looked at by the CPU.
  void move_input() {
    std::uint64_t seen_on_device = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
      copy_bytes_to_device(visit_.driver, on_device_.address(), piece);
      seen_on_device += gpu_.checksum(on_device_.address().value, piece.size(), first_word);
      for (Shared& each : shared_) {
        const std::span<std::byte> there = each.bytes().first(piece.size());
        std::copy(piece.begin(), piece.end(), there.begin());
        each.seen_by_kernel += gpu_.checksum(each.range.address().value, piece.size(), first_word);
        std::fill(there.begin(), there.end(), std::byte{0});
        gpu_.copy(each.range.address().value, on_device_.address().value, piece.size());
        each.seen_by_cpu.add(there);
      }
    });
    require_checksum(visit_, seen_on_device, "a kernel sees the input in device memory");
    for (const Shared& each : shared_) {
      require_checksum(visit_, each.seen_by_kernel, fmt::format("{}: a kernel reads what the CPU stored", each.name));
      require_checksum(visit_, each.seen_by_cpu.value(),
                       fmt::format("{}: the CPU reads what a kernel stored", each.name));
    }
  }

 private:
  // A number that is the device's nearest node, or the first where the driver names none.
  [[nodiscard]] int node() const { return std::max(0, gpu_.device().host_numa_node()); }

  void leave_out_extended(const std::string& statement, const std::string& reason) {
    visit_.checks.leave_out(statement, reason);
    visit_.shown += "; no EGM: " + reason;
  }

  // Memory for the host and the device, with the rights of both made sure of before one of them touches it.
  void share(const std::string& name, const MemoryProperties& properties) {
    MappedRange range = MappedRange::create(visit_.driver, {.capacity = size_,
                                                            .memory = properties,
                                                            .grants = {{Location::host(), AccessRights::read_write},
                                                                       {gpu_.location(), AccessRights::read_write}},
                                                            .chunks = ChunkPolicy::exact()});
    const std::uint64_t free_before = gpu_.free_memory();
    range.append(size_);
    const std::uint64_t free_after = gpu_.free_memory();
    visit_.checks.require(free_after + size_ > free_before, name + ": the memory is not the device's",
                          fmt::format("{} bytes were free on it before, {} after", free_before, free_after));
    // Asked for the host at large, a driver answers no more than what any device has; asked for a node, the CPU's own.
    require_rights(visit_, range.address(), Location::host_numa(0), AccessRights::read_write, name + ", for the CPU");
    require_rights(visit_, range.address(), gpu_.location(), AccessRights::read_write,
                   fmt::format("{}, for device {}", name, gpu_.ordinal()));
    visit_.shown += ", " + name;
    shared_.push_back({name, std::move(range)});
  }

  [[nodiscard]] abi::CUresult touched_by_cpu(const std::vector<AccessRights>& grants, Touch touch) const {
    AccessProbe probe{
        .driver = visit_.choice, .devices = static_cast<int>(visit_.gpus.size()), .toucher = cpu, .touch = touch};
    for (const AccessRights rights : grants) probe.grants.push_back(static_cast<int>(rights));
    return run_in_child(probe);
  }

  void require_cpu_faults(const std::vector<AccessRights>& grants, Touch touch, const std::string& violation) {
    const abi::CUresult result = touched_by_cpu(grants, touch);
    visit_.checks.require(is_fault(result), violation + " faults",
                          fmt::format("the answer was {}", driver::result_name(result)));
  }

  void require_cpu_may(const std::vector<AccessRights>& grants, Touch touch, const std::string& tried) {
    const abi::CUresult result = touched_by_cpu(grants, touch);
    visit_.checks.require(
        result == abi::CUDA_SUCCESS, tried + " is accepted",
        is_fault(result) ? "it faulted" : fmt::format("the answer was {}", driver::result_name(result)));
  }

  Visit& visit_;
  Gpu& gpu_;
  std::size_t size_;
  MappedRange on_device_;
  std::vector<Shared> shared_;
};

void visit_host_memory(Visit& visit) {
  HostMemoryTour memory(visit, require_first_gpu(visit));
  memory.device();
  memory.host();
  memory.host_numa();
  memory.extended();
  memory.move_input();
}

}  // namespace

Stop host_memory_stop() {
  return {"4.16.5.1", "Memory types",
          "memory of the device, of the host and of its nodes; the CPU uses what it is granted", visit_host_memory};
}

}  // namespace cuvmm::tour
