// A vector that grows without being copied: where it is, and by moving to more addresses with the same memory.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/device_vector.hpp"
#include "gpu/checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

class VectorTour {
 public:
  VectorTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        granule_(gpu.device().granularity()),
        size_(size_for(visit, gpu, granule_)),
        at_first_(size_ > 2 * granule_ ? 3 * granule_ : granule_),
        bytes_(DeviceVector<std::byte>::create(
            visit.driver, {.capacity = at_first_, .memory = {gpu.location()}, .chunks = ChunkPolicy::exact()})) {}
  VectorTour(const VectorTour&) = delete;
  VectorTour& operator=(const VectorTour&) = delete;
  ~VectorTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // Up to the last address.
  void grow_in_place() {
    bytes_.reserve(granule_);
    const std::byte* const pointer = bytes_.data();
    visit_.shown = "moved to more addresses with its bytes";
    if (at_first_ == granule_) {
      visit_.checks.leave_out("a vector grows where it is", "there is too little free memory");
    } else {
      fill(bytes_.address(), granule_);
      const std::uint64_t before = sum_of(bytes_.address(), granule_);
      bytes_.reserve(at_first_);
      visit_.checks.require(bytes_.data() == pointer, "a vector that grows within its addresses keeps its pointer");
      visit_.checks.require(sum_of(bytes_.address(), granule_) == before, "and its bytes");
      visit_.shown = "grown where it is, then " + visit_.shown;
    }
  }

  // The first piece of the input is written in part before the move and in part after it; with an empty input something
  // else is moved.
  void move_input() {
    std::uint64_t seen = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      bytes_.clear();
      const std::size_t head =
          moved_ ? 0 : std::min<std::size_t>(at_first_ - gpu::checksum_word_bytes, piece.size() / 2);
      bytes_.append(piece.first(head));
      if (!moved_) move();
      bytes_.append(piece.subspan(head));
      seen += gpu_.checksum(bytes_.address().value, piece.size(), offset / gpu::checksum_word_bytes);
    });
    if (!moved_) move();
    require_checksum(visit_, seen,
                     "a kernel reads the input from the vector, of which it wrote a part before it moved");
  }

 private:
  // In whole granules: four where there is memory for them, so that it can grow where it is, too.
  static std::size_t size_for(const Visit& visit, const Gpu& gpu, std::size_t granule) {
    const std::uint64_t free = gpu.free_memory();
    const std::size_t least = free >= 16 * granule ? 4 * granule : 2 * granule;
    return std::max<std::size_t>(least, window_bytes(visit.input.size(), granule, free));
  }

  void move() {
    moved_ = true;
    fill_the_rest();
    const AddressReservation taken =
        AddressReservation::create(visit_.driver, granule_, 0, bytes_.address() + at_first_);
    const DeviceAddress before = bytes_.address();
    const std::uint64_t sum = sum_of(before, at_first_);
    const std::uint64_t free_before = gpu_.free_memory();
    bytes_.reserve(size_);
    const std::uint64_t added = size_ - at_first_;
    const std::uint64_t free_after = gpu_.free_memory();
    if (bytes_.address() == before) {
      visit_.checks.leave_out("a vector without addresses left moves", "the driver gives the addresses behind it");
      return;
    }
    visit_.checks.require(true, "a vector whose addresses end has another pointer");
    visit_.checks.require(sum_of(bytes_.address(), at_first_) == sum, "with the same bytes behind it",
                          "they are others");
    visit_.checks.require(free_after + added + at_first_ > free_before, "it took no memory but what was added",
                          fmt::format("{} bytes were free before, {} after", free_before, free_after));
    require_one_memory(before);
    bytes_.buffer().release_former();
    require_refused(visit_.checks, driver_.cuMemsetD8(before.value, 0, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a memset through the former pointer, once it is released,");
    visit_.checks.require(sum_of(bytes_.address(), at_first_) == sum, "that was of no matter to the bytes");
  }

  // What is behind the input's part, so that all of it can be told from other memory.
  void fill_the_rest() {
    const std::size_t begin =
        (bytes_.size() + gpu::checksum_word_bytes - 1) / gpu::checksum_word_bytes * gpu::checksum_word_bytes;
    if (begin < at_first_) fill(bytes_.address() + begin, at_first_ - begin);
  }

  // A number that is written through the one is read through the other, in a place that the input has not.
  void require_one_memory(DeviceAddress former) {
    const std::size_t last = at_first_ - gpu::checksum_word_bytes;
    const std::uint64_t number = cuvmm::gpu::mix64(last);
    require_accepted(visit_.checks, gpu_.try_fill((former + last).value, gpu::checksum_word_bytes, number),
                     "a kernel's store through the former pointer");
    visit_.checks.require(
        sum_of(bytes_.address() + last, gpu::checksum_word_bytes) == cuvmm::gpu::checksum_term(number, 0),
        "it is read through the new one");
    fill(bytes_.address() + last, gpu::checksum_word_bytes);
  }

  void fill(DeviceAddress address, std::size_t bytes) {
    require_accepted(visit_.checks, gpu_.try_fill(address.value, bytes, pattern), "a kernel's store to the vector");
  }
  std::uint64_t sum_of(DeviceAddress address, std::size_t bytes) { return gpu_.checksum(address.value, bytes, 0); }

  static constexpr std::uint64_t pattern = 0x0123456789ABCDEF;

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t granule_;
  std::size_t size_;
  std::size_t at_first_;
  DeviceVector<std::byte> bytes_;
  bool moved_ = false;
};

void visit_vector(Visit& visit) {
  VectorTour vector(visit, require_first_gpu(visit));
  vector.grow_in_place();
  vector.move_input();
}

}  // namespace

Stop vector_stop() {
  return {"vector", "Vector", "a vector that grows where it is, and by moving without a copy", visit_vector};
}

}  // namespace cuvmm::tour
