// 4.16.5.4: what handles are on this system: descriptors, which are no numbers; none of Windows; and fabric handles,
// which the host's memory can have, too.
#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/convert.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/fabric.hpp"
#include "tour/party.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using sharing::HandleOfMemory;
using sharing::ShareableHandle;

constexpr auto host_memory = "memory of the host in other processes, by fabric handle (extended GPU memory, EGM)";

// A memory of this process that another one has as well, and what its kernels have seen of the input there.
struct SharedOnce {
  const MappedRange* memory;
  Party* party;
  std::size_t index;  // of the memory there
  std::string name;
  std::uint64_t seen = 0;
};

class HandleTypesTour {
 public:
  HandleTypesTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        size_(window_bytes(visit.input.size(), gpu.device().granularity(), gpu.free_memory())),
        on_device_(new_range({.location = gpu.location(), .handle_types = HandleType::posix_file_descriptor})),
        neighbour_(visit.place, "the importer", {.device = gpu.ordinal()}) {}
  HandleTypesTour(const HandleTypesTour&) = delete;
  HandleTypesTour& operator=(const HandleTypesTour&) = delete;
  HandleTypesTour(HandleTypesTour&&) = delete;
  HandleTypesTour& operator=(HandleTypesTour&&) = delete;
  ~HandleTypesTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // The number of a descriptor means something in its own process alone; sent, it is one of the receiver's.
  void descriptors() {
    constexpr int far_away = 500;  // where the other process has none
    const HandleOfMemory handle = exported(on_device_, HandleType::posix_file_descriptor);
    const UniqueDescriptor copy(::fcntl(handle.handle.descriptor(), F_DUPFD_CLOEXEC, far_away));
    if (copy)
      require_refused(visit_.checks, neighbour_.import_number(copy.get()),
                      {abi::CUDA_ERROR_UNKNOWN, abi::CUDA_ERROR_INVALID_VALUE},
                      "importing by a descriptor's number in another process");
    else
      visit_.checks.leave_out("a descriptor's number in another process", "this process may not have so many");
    require_accepted(visit_.checks, "importing from the descriptor once it is sent",
                     [&] { neighbour_.take(std::span(&handle, 1)); });
    shared_.push_back({&on_device_, &neighbour_, 0, "device memory, by a descriptor that was sent"});
    visit_.shown = "descriptors, which are sent and are no numbers";
  }

  void windows() {
    const std::size_t granule = gpu_.device().granularity();
    for (const auto& [type, name] : {std::pair{HandleType::win32, "win32"}, {HandleType::win32_kmt, "win32_kmt"}}) {
      const abi::CUmemAllocationProp properties =
          driver::to_abi(MemoryProperties{.location = gpu_.location(), .handle_types = type});
      abi::CUmemGenericAllocationHandle handle = 0;
      const abi::CUresult created = driver_.cuMemCreate(&handle, granule, &properties, 0);
      if (created == abi::CUDA_SUCCESS) static_cast<void>(driver_.cuMemRelease(handle));
      require_refused(visit_.checks, created, {abi::CUDA_ERROR_INVALID_VALUE, abi::CUDA_ERROR_NOT_SUPPORTED},
                      fmt::format("creating memory with handles of Windows ({})", name));
      const auto tried =
          PhysicalMemory::try_create(visit_.driver, {.location = gpu_.location(), .handle_types = type}, granule);
      visit_.checks.require(!tried && tried.failure().kind == ErrorKind::not_supported,
                            fmt::format("the library says that there are none of these here ({})", name),
                            tried ? "it created the memory" : tried.failure().message());
    }
    visit_.shown += "; none of Windows";
  }

  // The host's memory, which kernels of this node and of another one reach.
  void extended() {
    const Location node = Location::host_numa(std::max(0, gpu_.device().host_numa_node()));
    std::string why = gpu_.device().attribute(abi::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED) == 0
                          ? "the device does not offer them: they take a CPU that is joined to the GPU by NVLink"
                          : why_no_fabric_handles(gpu_.device(), node);
    if (!why.empty()) {
      visit_.checks.leave_out(host_memory, why);
      visit_.shown += "; fabric handles of host memory unavailable: " + why;
      return;
    }
    on_host_.emplace(new_range({.location = node, .handle_types = HandleType::fabric}));
    const HandleOfMemory handle = exported(*on_host_, HandleType::fabric);
    require_accepted(visit_.checks, "importing host memory from its fabric handle in another process",
                     [&] { neighbour_.take(std::span(&handle, 1)); });
    shared_.push_back({&*on_host_, &neighbour_, 1, "host memory, by a fabric handle, in another process"});
    visit_.shown += "; fabric handles of host memory, in another process";
    another_node(handle);
  }

  // All of it, whatever the input's size.
  void show_the_same() {
    const std::vector<std::byte> sample = sample_of_input(visit_.input, size_);
    put(sample);
    ContentChecksum expected;
    expected.add(sample);
    for (SharedOnce& each : shared_) {
      const std::uint64_t seen = each.party->checksum(each.index, sample.size(), 0);
      visit_.checks.require(seen == expected.value(), each.name + ": it is the same memory",
                            fmt::format("a kernel there saw {:016x} and not {:016x}", seen, expected.value()));
    }
  }

  void move_input() {
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      put(piece);
      for (SharedOnce& each : shared_)
        each.seen += each.party->checksum(each.index, piece.size(), offset / gpu::checksum_word_bytes);
    });
    for (const SharedOnce& each : shared_)
      require_checksum(visit_, each.seen, fmt::format("{}: a kernel there sees the input", each.name));
  }

  void end() {
    neighbour_.drop();
    neighbour_.end();
    if (!distant_) return;
    distant_->drop();
    distant_->end();
  }

 private:
  [[nodiscard]] MappedRange new_range(const MemoryProperties& properties) const {
    auto range = MappedRange::create(visit_.driver, {.capacity = size_,
                                                     .memory = properties,
                                                     .grants = {{gpu_.location(), AccessRights::read_write}},
                                                     .chunks = ChunkPolicy::exact()});
    range.append(size_);
    return range;
  }

  void put(std::span<const std::byte> bytes) {
    copy_bytes_to_device(visit_.driver, on_device_.address(), bytes);
    if (on_host_) gpu_.copy(on_host_->address().value, on_device_.address().value, bytes.size());
  }

  static HandleOfMemory exported(const MappedRange& range, HandleType type) {
    const SharedPhysicalMemory memory = range.memory_at(0);
    return {ShareableHandle::export_from(memory.memory(), type), memory.memory().size()};
  }

  void another_node(const HandleOfMemory& handle) {
    if (visit_.place.nodes < 2) {
      visit_.checks.leave_out("the same on another node",
                              "all processes of this tour are on one node: emulate a machine of two, "
                              "CUVMM_EMULATOR=profile=gb200,nodes=2");
      return;
    }
    distant_ = std::make_unique<Party>(visit_.place, "the importer of node 1", PartyOptions{.node = 1});
    require_accepted(visit_.checks, "importing it on another node", [&] { distant_->take(std::span(&handle, 1)); });
    shared_.push_back({&*on_host_, distant_.get(), 0, "host memory, by a fabric handle, on another node"});
    visit_.shown += " and on another node";
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t size_;
  MappedRange on_device_;
  std::optional<MappedRange> on_host_;
  Party neighbour_;
  std::unique_ptr<Party> distant_;
  std::vector<SharedOnce> shared_;
};

void visit_handle_types(Visit& visit) {
  constexpr int other_processes = 1;
  Gpu& gpu = require_first_gpu(visit);
  if (!gpu.device().supports_handle_type(HandleType::posix_file_descriptor))
    throw Unavailable(fmt::format("device {} has no descriptors of memory", gpu.ordinal()));
  require_other_processes(visit, gpu, other_processes);
  HandleTypesTour tour(visit, gpu);
  tour.descriptors();
  tour.windows();
  tour.extended();
  tour.show_the_same();
  tour.move_input();
  tour.end();
}

}  // namespace

Stop handle_types_stop() {
  return {"4.16.5.4", "Handle types", "descriptors, which are sent and are no numbers; fabric handles of host memory",
          visit_handle_types};
}

}  // namespace cuvmm::tour
