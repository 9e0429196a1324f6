// 4.16.3.1: memory that is made to be exported, and its handles.
#include <fcntl.h>
#include <fmt/core.h>

#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/fabric.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using sharing::ShareableHandle;

// A new range of one chunk.
MappedRange range_of(const Driver& driver, const MemoryProperties& properties, std::size_t bytes) {
  auto range = MappedRange::create(driver, {.capacity = bytes, .memory = properties, .chunks = ChunkPolicy::exact()});
  range.append(bytes);
  return range;
}

class ExportTour {
 public:
  ExportTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        granule_(gpu.device().granularity()),
        size_(window_bytes(visit.input.size(), granule_, gpu.free_memory())) {}
  ExportTour(const ExportTour&) = delete;
  ExportTour& operator=(const ExportTour&) = delete;
  ExportTour(ExportTour&&) = delete;
  ExportTour& operator=(ExportTour&&) = delete;
  ~ExportTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // How memory may be exported is said when it is created.
  void not_asked_for() {
    const auto plain = PhysicalMemory::create(visit_.driver, {gpu_.location()}, granule_);
    require_refused(visit_.checks, exported_as_it_is(plain), {abi::CUDA_ERROR_INVALID_VALUE},
                    "exporting memory that was made without handle types");
    const auto tried = ShareableHandle::try_export_from(plain, HandleType::posix_file_descriptor);
    visit_.checks.require(
        !tried && tried.failure().message().find("HandleType::posix_file_descriptor") != std::string::npos,
        "the library names what was missing when it was created", tried ? "it exported it" : tried.failure().message());
  }

  // Two handles of one memory, each a descriptor of its own, and the memory behind each in addresses of its own.
  void twice() {
    range_.emplace(range_of(visit_.driver,
                            {.location = gpu_.location(), .handle_types = HandleType::posix_file_descriptor}, size_));
    require_accepted(visit_.checks, exported_as_it_is(memory()), "the same for memory that was made for descriptors");
    const auto first = ShareableHandle::export_from(memory(), HandleType::posix_file_descriptor);
    const auto second = ShareableHandle::export_from(memory(), HandleType::posix_file_descriptor);
    visit_.checks.require(first.descriptor() != second.descriptor(), "each export makes a descriptor of its own");
    for (const ShareableHandle* each : {&first, &second})
      visit_.checks.require((::fcntl(each->descriptor(), F_GETFD) & FD_CLOEXEC) != 0,
                            "which programs that this one starts do not inherit");
    for (const ShareableHandle* each : {&first, &second}) imported_.push_back(mapped(*each, size_));
    visit_.shown = "two descriptors of one memory, each imported here";
  }

  void refusals() {
    abi::CUipcMemHandle legacy{};
    require_refused(visit_.checks, driver_.cuIpcGetMemHandle(&legacy, range_->address().value),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "a legacy IPC handle of this memory");
    const SharedPhysicalMemory imported = imported_.front().memory_at(0);
    require_refused(visit_.checks, exported_as_it_is(imported.memory()), {abi::CUDA_ERROR_INVALID_VALUE},
                    "exporting imported memory once more");
  }

  // All of it, whatever the input's size.
  void show_the_same() {
    const std::vector<std::byte> sample = sample_of_input(visit_.input, size_);
    copy_bytes_to_device(visit_.driver, range_->address(), sample);
    ContentChecksum expected;
    expected.add(sample);
    for (const MappedRange& each : imported_) require_sample(each, expected.value(), "what a descriptor stands for");
  }

  void move_input() {
    std::vector<std::uint64_t> seen(imported_.size(), 0);
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      copy_bytes_to_device(visit_.driver, range_->address(), piece);
      for (std::size_t index = 0; index < imported_.size(); ++index)
        seen[index] += gpu_.checksum(imported_[index].address().value, piece.size(), offset / gpu::checksum_word_bytes);
    });
    require_checksum(visit_, seen.front(), "a kernel sees the input through the first descriptor");
    require_checksum(visit_, seen.back(), "a kernel sees the input through the second descriptor");
  }

  void fabric() {
    constexpr auto statement = "what 64 bytes stand for, a fabric handle,";
    imported_.clear();
    range_.reset();  // the driver says that there is too little memory before it says that there is no IMEX channel
    if (const std::string why = why_no_fabric_handles(gpu_.device(), gpu_.location()); !why.empty()) {
      visit_.checks.leave_out(std::string(statement) + " is the same memory", why);
      visit_.shown += "; fabric handles unavailable: " + why;
      return;
    }
    range_.emplace(
        range_of(visit_.driver, {.location = gpu_.location(), .handle_types = HandleType::fabric}, 2 * granule_));
    const std::vector<std::byte> sample = sample_of_input(visit_.input, 2 * granule_);
    copy_bytes_to_device(visit_.driver, range_->address(), sample);
    ContentChecksum expected;
    expected.add(sample);
    const auto handle = ShareableHandle::export_from(memory(), HandleType::fabric);
    require_sample(mapped(ShareableHandle::from_bytes(handle.fabric_bytes()), 2 * granule_), expected.value(),
                   statement);
    visit_.shown += "; a fabric handle";
  }

 private:
  [[nodiscard]] const PhysicalMemory& memory() const { return range_->memory_at(0).memory(); }

  // By the driver's call, whose handle is closed again.
  [[nodiscard]] abi::CUresult exported_as_it_is(const PhysicalMemory& memory) const {
    int descriptor = -1;
    const abi::CUresult result = driver_.cuMemExportToShareableHandle(&descriptor, memory.handle(),
                                                                      abi::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == abi::CUDA_SUCCESS) UniqueDescriptor(descriptor).close();
    return result;
  }

  [[nodiscard]] MappedRange mapped(const ShareableHandle& handle, std::size_t bytes) const {
    auto range = MappedRange::create(visit_.driver,
                                     {.capacity = bytes, .memory = {gpu_.location()}, .chunks = ChunkPolicy::exact()});
    range.append(SharedPhysicalMemory(handle.import_into(visit_.driver, {.bytes = bytes})));
    return range;
  }

  void require_sample(const MappedRange& range, std::uint64_t expected, const std::string& what) {
    const std::uint64_t seen = gpu_.checksum(range.address().value, range.size(), 0);
    visit_.checks.require(seen == expected, what + " is the same memory",
                          fmt::format("a kernel saw {:016x} and not {:016x}", seen, expected));
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t granule_;
  std::size_t size_;
  std::optional<MappedRange> range_;
  std::vector<MappedRange> imported_;
};

void visit_export(Visit& visit) {
  Gpu& gpu = require_first_gpu(visit);
  if (!gpu.device().supports_handle_type(HandleType::posix_file_descriptor))
    throw Unavailable(fmt::format("device {} has no descriptors of memory", gpu.ordinal()));
  ExportTour tour(visit, gpu);
  tour.not_asked_for();
  tour.twice();
  tour.refusals();
  tour.show_the_same();
  tour.move_input();
  tour.fabric();
}

}  // namespace

Stop export_stop() {
  return {"4.16.3.1", "Export", "memory that is made to be exported, and two handles of it", visit_export};
}

}  // namespace cuvmm::tour
