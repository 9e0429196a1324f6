// 4.16.3.3: memory behind a pointer: in many chunks, of several devices, and exchanged while the pointer stays.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/call.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;

constexpr auto several_devices = "memory of several devices lies behind one pointer";

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  ContentChecksum checksum;
  checksum.add(bytes);
  return checksum.value();
}

class MappingTour {
 public:
  MappingTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        gpu_(gpu),
        granule_(gpu.device().granularity()),
        size_(window_bytes(visit.input.size(), granule_, gpu.free_memory())),
        range_(MappedRange::create(visit.driver, options(size_))) {}
  MappingTour(const MappingTour&) = delete;
  MappingTour& operator=(const MappingTour&) = delete;
  ~MappingTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // Chunk by chunk, as small as they may be.
  void grow() {
    const DeviceAddress address = range_.address();
    for (std::size_t bytes = 0; bytes < size_; bytes += granule_) range_.append(granule_);
    const std::size_t chunks = size_ / granule_;
    visit_.checks.require(range_.chunks().size() == chunks && range_.size() == size_,
                          fmt::format("a range that grew by {} appends has as many chunks", chunks),
                          fmt::format("{} of {} bytes", range_.chunks().size(), range_.size()));
    visit_.checks.require(range_.address() == address, "its pointer stayed");
    for (const std::size_t offset : {std::size_t{0}, size_ - granule_})
      require_rights(visit_, address + offset, gpu_.location(), AccessRights::read_write,
                     offset == 0 ? "the first chunk" : "the chunk that was appended last");
    visit_.shown = fmt::format("{} chunks of {} bytes behind one pointer", chunks, command::with_separators(granule_));
  }

  // A number in each chunk, and each still there when all are written.
  void tell_chunks_apart() {
    std::uint64_t expected = 0;
    std::uint64_t seen = 0;
    const auto number_of = [](std::uint64_t chunk) { return cuvmm::gpu::mix64(chunk + 1); };
    for (std::size_t chunk = 0; chunk < size_ / granule_; ++chunk)
      require_fill(range_.address() + chunk * granule_, word_bytes, number_of(chunk));
    for (std::size_t chunk = 0; chunk < size_ / granule_; ++chunk) {
      expected += cuvmm::gpu::checksum_term(number_of(chunk), chunk);
      seen += gpu_.checksum((range_.address() + chunk * granule_).value, word_bytes, chunk);
    }
    visit_.checks.require(seen == expected, "each chunk is memory of its own",
                          "what was written to one is seen in another");
  }

  // A piece that is smaller than the range lies around the border in its middle.
  void move_input() {
    std::uint64_t seen = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::size_t border = size_ / granule_ / 2 * granule_;
      const std::size_t before = std::min(border, piece.size() / 2 / word_bytes * word_bytes);
      const std::size_t begin = border - before + piece.size() <= size_ ? border - before : 0;
      copy_bytes_to_device(visit_.driver, range_.address() + begin, piece);
      seen += gpu_.checksum((range_.address() + begin).value, piece.size(), offset / word_bytes);
    });
    require_checksum(visit_, seen, "a kernel reads the input across the borders of chunks");
  }

  // Other memory behind the first chunk, and then the former again.
  void exchange() {
    range_.truncate(granule_);
    const std::vector<std::byte> sample = sample_of_input(visit_.input, granule_);
    copy_bytes_to_device(visit_.driver, range_.address(), sample);
    const DeviceAddress address = range_.address();
    const std::uint64_t generation = range_.generation();
    const SharedPhysicalMemory former = range_.replace(0, range_.source()->acquire(range_.properties(), granule_));
    visit_.checks.require(range_.address() == address && range_.size() == granule_,
                          "with other memory behind it a range keeps its pointer and its size");
    require_rights(visit_, address, gpu_.location(), AccessRights::read_write, "and the rights");
    visit_.checks.require(range_.generation() > generation, "its generation grew",
                          fmt::format("from {} to {}", generation, range_.generation()));
    require_fill(address, granule_, cuvmm::gpu::mix64(granule_));
    static_cast<void>(range_.replace(0, former));
    const std::uint64_t seen = gpu_.checksum(address.value, granule_, 0);
    visit_.checks.require(seen == checksum_of(sample),
                          "what was written there meanwhile is not in the former memory, which has kept its bytes");
    visit_.shown += "; other memory behind the pointer, and the former again";
  }

  // A chunk of each device that the first one reaches, all read by that one.
  void join_devices() {
    if (visit_.gpus.size() < 2) {
      visit_.checks.leave_out(several_devices, "one device takes part: ask for --devices 2");
      visit_.shown += "; memory of one device only, since one takes part";
      return;
    }
    range_.truncate(granule_);
    std::size_t devices = 1;
    for (const std::unique_ptr<Gpu>& other : visit_.gpus.subspan(1)) {
      if (!gpu_.device().can_access_peer(other->device())) {
        visit_.checks.leave_out(
            fmt::format("memory of device {} beside that of device {}", other->ordinal(), gpu_.ordinal()),
            "the one cannot reach the other's memory");
        continue;
      }
      const std::size_t offset = range_.append(granule_, other->location());
      require_place(offset, *other);
      ++devices;
    }
    if (devices == 1) return;
    const std::vector<std::byte> sample = sample_of_input(visit_.input, devices * granule_);
    copy_bytes_to_device(visit_.driver, range_.address(), sample);
    visit_.checks.require(gpu_.checksum(range_.address().value, sample.size(), 0) == checksum_of(sample),
                          fmt::format("{}: a kernel reads that of {}", several_devices, devices));
    visit_.shown += fmt::format("; memory of {} devices behind it", devices);
  }

 private:
  static constexpr std::size_t word_bytes = cuvmm::gpu::checksum_word_bytes;

  [[nodiscard]] MappedRangeOptions options(std::size_t bytes) const {
    return {.capacity = bytes + visit_.gpus.size() * granule_,
            .memory = {gpu_.location()},
            .chunks = ChunkPolicy::fixed(granule_)};
  }

  void require_fill(DeviceAddress address, std::size_t bytes, std::uint64_t pattern) {
    const abi::CUresult filled = gpu_.try_fill(address.value, bytes, pattern);
    if (filled != abi::CUDA_SUCCESS) require_accepted(visit_.checks, filled, "a kernel's store to the range");
  }

  // The driver tells of the chunk at that offset that it lies on that device.
  void require_place(std::size_t offset, const Gpu& owner) {
    abi::CUmemAllocationProp got{};
    call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(visit_.driver.interface(), &got,
                                                             range_.memory_at(offset).memory().handle());
    visit_.checks.require(
        got.location.type == abi::CU_MEM_LOCATION_TYPE_DEVICE && got.location.id == owner.ordinal(),
        fmt::format("the chunk that was appended for device {} lies there", owner.ordinal()),
        fmt::format("it lies at {}, of type {}", got.location.id, static_cast<int>(got.location.type)));
  }

  Visit& visit_;
  Gpu& gpu_;
  std::size_t granule_;
  std::size_t size_;
  MappedRange range_;
};

void visit_mapping(Visit& visit) {
  MappingTour mapping(visit, require_first_gpu(visit));
  mapping.grow();
  mapping.tell_chunks_apart();
  mapping.move_input();
  mapping.exchange();
  mapping.join_devices();
}

}  // namespace

Stop mapping_stop() {
  return {"4.16.3.3", "Mapping", "many chunks behind one pointer, memory of several devices, memory exchanged",
          visit_mapping};
}

}  // namespace cuvmm::tour
