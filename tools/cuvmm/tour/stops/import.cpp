// 4.16.3.2: memory of one process in others: by descriptors within a node, by fabric handles on another one.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "command/words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/fabric.hpp"
#include "tour/party.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using sharing::HandleOfMemory;
using sharing::ShareableHandle;

constexpr auto second_device = "the memory of one device in a process that uses another";
constexpr auto other_node = "the memory of one node in a process of another, by fabric handles";

// A process that has the memory, and what its kernels have seen of the input.
struct Importer {
  std::unique_ptr<Party> party;
  std::uint64_t seen = 0;
};

class ImportTour {
 public:
  ImportTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        half_(half_of_window(visit, gpu)),
        no_fabric_(why_no_fabric_handles(gpu.device(), gpu.location())) {}
  ImportTour(const ImportTour&) = delete;
  ImportTour& operator=(const ImportTour&) = delete;
  ImportTour(ImportTour&&) = delete;
  ImportTour& operator=(ImportTour&&) = delete;
  ~ImportTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // Two memories, each in addresses of its own.
  void export_two() {
    HandleTypes types = HandleType::posix_file_descriptor;
    if (no_fabric_.empty()) types = types | HandleType::fabric;
    for (int count = 0; count < 2; ++count) {
      memories_.push_back(
          MappedRange::create(visit_.driver, {.capacity = half_,
                                              .memory = {.location = gpu_.location(), .handle_types = types},
                                              .chunks = ChunkPolicy::exact()}));
      memories_.back().append(half_);
    }
  }

  // Two processes beside this one, the second with a device of its own if there is one.
  void by_descriptors() {
    const auto handles = exported_as(HandleType::posix_file_descriptor);
    const int second = device_of_second();
    add({.device = gpu_.ordinal()}, handles);
    add({.device = second}, handles);
    visit_.shown = fmt::format("two memories in three processes, by descriptors, on {}",
                               second == gpu_.ordinal() ? "one device" : "two devices");
  }

  void by_fabric_handles() {
    if (!no_fabric_.empty()) return leave_out_other_node(no_fabric_);
    const auto handles = exported_as(HandleType::fabric);
    if (visit_.place.nodes < 2) {
      add({.device = gpu_.ordinal()}, handles);
      visit_.shown += "; in a fourth by fabric handles";
      return leave_out_other_node(
          "all processes of this tour are on one node: emulate a machine of two, CUVMM_EMULATOR=profile=gb200,nodes=2");
    }
    add({.device = 0, .node = 1}, handles);
    visit_.shown += "; in a fourth, on another node, by fabric handles";
  }

  // What is no handle is refused.
  void wrong_descriptor() {
    const UniqueDescriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    abi::CUmemGenericAllocationHandle handle = 0;
    require_refused(visit_.checks,
                    driver_.cuMemImportFromShareableHandle(
                        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(nothing.get())),
                        abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                    {abi::CUDA_ERROR_UNKNOWN, abi::CUDA_ERROR_INVALID_VALUE},
                    "importing from a descriptor of another file");
  }

  // All of both memories, whatever the input's size.
  void show_the_same() {
    const std::vector<std::byte> sample = sample_of_input(visit_.input, 2 * half_);
    put(sample);
    ContentChecksum expected;
    expected.add(sample);
    for (Importer& each : importers_) {
      const std::uint64_t seen = seen_by(*each.party, 0, sample.size());
      visit_.checks.require(seen == expected.value(), fmt::format("{} has both memories", each.party->name()),
                            fmt::format("a kernel there saw {:016x} and not {:016x}", seen, expected.value()));
    }
  }

  // In here and seen there; then in there, by one of the importers, and seen here.
  void move_input() {
    std::uint64_t seen_here = 0;
    for_each_piece(visit_, 2 * half_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      put(piece);
      for (Importer& each : importers_) each.seen += seen_by(*each.party, offset, piece.size());
      for (const MappedRange& each : memories_) require_accepted_quietly(gpu_.try_fill(each.address().value, half_, 0));
      for_each_part(offset, piece.size(), [&](std::size_t index, std::uint64_t begin, std::uint64_t bytes) {
        importers_.front().party->store(index, visit_.input.path(), begin, bytes);
        seen_here += gpu_.checksum(memories_[index].address().value, bytes, begin / gpu::checksum_word_bytes);
      });
    });
    for (const Importer& each : importers_)
      require_checksum(visit_, each.seen, fmt::format("a kernel of {} sees the input", each.party->name()));
    require_checksum(visit_, seen_here, "a kernel here sees what an importer stored");
  }

  void end() {
    for (Importer& each : importers_) {
      each.party->drop();
      each.party->end();
    }
  }

 private:
  static std::size_t half_of_window(const Visit& visit, const Gpu& gpu) {
    const std::size_t granule = gpu.device().granularity();
    return window_bytes(visit.input.size(), granule, gpu.free_memory()) / granule / 2 * granule;
  }

  [[nodiscard]] std::vector<HandleOfMemory> exported_as(HandleType type) const {
    std::vector<HandleOfMemory> handles;
    for (const MappedRange& each : memories_) {
      const SharedPhysicalMemory memory = each.memory_at(0);
      handles.push_back({ShareableHandle::export_from(memory.memory(), type), memory.memory().size()});
    }
    return handles;
  }

  void add(const PartyOptions& options, const std::vector<HandleOfMemory>& handles) {
    const std::string where = options.node == 0 ? "" : fmt::format(" of node {}", options.node);
    const std::string name = fmt::format("importer {}, on device {}{}", importers_.size() + 1, options.device, where);
    importers_.push_back({std::make_unique<Party>(visit_.place, name, options)});
    importers_.back().party->take(handles);
  }

  [[nodiscard]] int device_of_second() {
    if (visit_.gpus.size() < 2) {
      visit_.checks.leave_out(second_device, "one device takes part: ask for --devices 2");
      return gpu_.ordinal();
    }
    const Gpu& other = *visit_.gpus[1];
    if (other.device().can_access_peer(gpu_.device())) return other.ordinal();
    visit_.checks.leave_out(second_device,
                            fmt::format("device {} cannot reach device {}", other.ordinal(), gpu_.ordinal()));
    return gpu_.ordinal();
  }

  void leave_out_other_node(const std::string& why) {
    visit_.checks.leave_out(other_node, why);
    visit_.shown += "; another node unavailable: " + why;
  }

  // What of that part of the input lies in each memory: its index, where it begins in the input, how much it is.
  template <typename Act>
  void for_each_part(std::uint64_t offset, std::size_t bytes, Act act) const {
    if (bytes != 0) act(0, offset, std::min(bytes, half_));
    if (bytes > half_) act(1, offset + half_, bytes - half_);
  }

  void put(std::span<const std::byte> bytes) {
    for_each_part(0, bytes.size(), [&](std::size_t index, std::uint64_t begin, std::uint64_t count) {
      copy_bytes_to_device(visit_.driver, memories_[index].address(), bytes.subspan(begin, count));
    });
  }

  std::uint64_t seen_by(Party& party, std::uint64_t offset, std::size_t bytes) const {
    std::uint64_t sum = 0;
    for_each_part(offset, bytes, [&](std::size_t index, std::uint64_t begin, std::uint64_t count) {
      sum += party.checksum(index, count, begin / gpu::checksum_word_bytes);
    });
    return sum;
  }

  void require_accepted_quietly(abi::CUresult result) {
    if (result != abi::CUDA_SUCCESS) require_accepted(visit_.checks, result, "a kernel's store to exported memory");
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t half_;
  std::string no_fabric_;
  std::vector<MappedRange> memories_;
  std::vector<Importer> importers_;
};

void visit_import(Visit& visit) {
  constexpr int other_processes = 2;
  Gpu& gpu = require_first_gpu(visit);
  if (!gpu.device().supports_handle_type(HandleType::posix_file_descriptor))
    throw Unavailable(fmt::format("device {} has no descriptors of memory", gpu.ordinal()));
  require_other_processes(visit, gpu, other_processes);
  ImportTour tour(visit, gpu);
  tour.export_two();
  tour.by_descriptors();
  tour.by_fabric_handles();
  tour.wrong_descriptor();
  tour.show_the_same();
  tour.move_input();
  tour.end();
}

}  // namespace

Stop import_stop() {
  return {"4.16.3.2", "Import", "the memory of one process in others, by descriptors and by fabric handles",
          visit_import};
}

}  // namespace cuvmm::tour
