// One array over several places: the devices that take part, and the host.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/stitched_array.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

class StitchedTour {
 public:
  StitchedTour(Visit& visit, Gpu& gpu)
      : visit_(visit), gpu_(gpu), granule_(gpu.device().granularity()), places_(places_of(visit, gpu)) {
    const std::uint64_t window = window_bytes(visit.input.size(), granule_, gpu.free_memory());
    size_ = std::max<std::size_t>(window, places_.size() * granule_);
  }
  StitchedTour(const StitchedTour&) = delete;
  StitchedTour& operator=(const StitchedTour&) = delete;
  ~StitchedTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // The input in blocks, one for each place.
  void move_input() {
    auto bytes = make(StitchedLayout::block());
    require_places(bytes, places_.size());
    std::uint64_t seen = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::size_t begin = around_a_border(bytes, piece.size());
      bytes.write(begin, piece);
      seen += gpu_.checksum((bytes.address() + begin).value, piece.size(), offset / gpu::checksum_word_bytes);
    });
    require_checksum(visit_, seen, "a kernel reads the input across the borders of places");
    visit_.shown = fmt::format("memory of {} behind one pointer, in blocks and going round", names());
  }

  // A part of it in pieces that go round.
  void go_round() {
    auto bytes = make(StitchedLayout::cyclic(granule_));
    require_places(bytes, places_.size() == 1 ? 1 : size_ / granule_);
    const std::vector<std::byte> sample = sample_of_input(visit_.input, size_);
    bytes.write(0, sample);
    ContentChecksum expected;
    expected.add(sample);
    visit_.checks.require(gpu_.checksum(bytes.address().value, size_, 0) == expected.value(),
                          "a kernel reads what lies in pieces that go round the places");
    std::size_t local = 0;
    for (const auto& part : bytes.parts_at(gpu_.location())) local += part.count;
    visit_.checks.require(local >= size_ / places_.size() / granule_ * granule_ && local != 0,
                          "each place has its share of them", fmt::format("{} of {} bytes are local", local, size_));
  }

 private:
  using Bytes = StitchedArray<std::byte>;

  // The first device, the others that it reaches and that reach it, and a NUMA node of the host.
  static std::vector<Location> places_of(Visit& visit, const Gpu& gpu) {
    std::vector<Location> places{gpu.location()};
    for (const std::unique_ptr<Gpu>& other : visit.gpus.subspan(1)) {
      if (gpu.device().can_access_peer(other->device())) {
        places.push_back(other->location());
      } else {
        visit.checks.leave_out(
            fmt::format("memory of device {} beside that of device {}", other->ordinal(), gpu.ordinal()),
            "the one cannot reach the other's memory");
      }
    }
    if (gpu.device().supports_host_numa_memory()) {
      places.push_back(Location::host_numa(std::max(0, gpu.device().host_numa_node())));
    } else {
      visit.checks.leave_out("memory of the host beside that of devices", "the device does not offer it");
    }
    return places;
  }

  [[nodiscard]] Bytes make(const StitchedLayout& layout) {
    return Bytes::create(visit_.driver, size_,
                         {.locations = places_, .layout = layout, .on_warning = [](const std::string&) {}});
  }

  // The driver tells of each part that it lies where the array says.
  void require_places(const Bytes& bytes, std::size_t parts) {
    visit_.checks.require(bytes.parts().size() == parts, fmt::format("an array of {} parts has as many", parts),
                          fmt::format("it has {}", bytes.parts().size()));
    std::string wrong;
    for (const auto& part : bytes.parts()) {
      const Location told = PhysicalMemory::retain(visit_.driver, bytes.address() + part.first).properties().location;
      if (told == part.location) continue;
      wrong = fmt::format("that of {} lies at {}", to_string(part.location), to_string(told));
    }
    visit_.checks.require(wrong.empty(),
                          fmt::format("the driver says of all {} that they lie where they are to", parts), wrong);
  }

  // Where so many bytes begin that have the first border in their middle.
  [[nodiscard]] std::size_t around_a_border(const Bytes& bytes, std::size_t count) const {
    const auto parts = bytes.parts();
    const std::size_t border = parts.size() < 2 ? 0 : parts[1].first;
    const std::size_t before = std::min(border, count / 2 / gpu::checksum_word_bytes * gpu::checksum_word_bytes);
    return border - before + count <= size_ ? border - before : 0;
  }

  [[nodiscard]] std::string names() const {
    std::string text;
    for (const Location& each : places_) text += (text.empty() ? "" : ", ") + to_string(each);
    return text;
  }

  Visit& visit_;
  Gpu& gpu_;
  std::size_t granule_;
  std::vector<Location> places_;
  std::size_t size_ = 0;
};

void visit_stitched(Visit& visit) {
  StitchedTour stitched(visit, require_first_gpu(visit));
  stitched.move_input();
  stitched.go_round();
}

}  // namespace

Stop stitched_stop() {
  return {"stitched", "Stitched", "one array over the memory of devices and of the host", visit_stitched};
}

}  // namespace cuvmm::tour
