// A ring: one memory twice in a row, so that what runs past the end goes on at the beginning.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/ring_buffer.hpp"
#include "gpu/checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

class RingTour {
 public:
  RingTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        gpu_(gpu),
        free_before_(gpu.free_memory()),
        ring_(RingBuffer::create(visit.driver, {.bytes = bytes_for(visit, gpu), .memory = {gpu.location()}})),
        source_(visit.driver, ring_.size()) {}
  RingTour(const RingTour&) = delete;
  RingTour& operator=(const RingTour&) = delete;
  ~RingTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  void look_at_it() {
    const std::uint64_t free_after = gpu_.free_memory();
    visit_.checks.require(free_after + 2 * ring_.size() > free_before_, "a ring takes its memory once",
                          fmt::format("{} bytes were free before, {} after", free_before_, free_after));
    const std::uint64_t number = cuvmm::gpu::mix64(ring_.size());
    const DeviceAddress second = ring_.address() + ring_.size();
    require_accepted(visit_.checks, gpu_.try_fill(second.value, ring_.size(), number),
                     "a kernel's store behind the end of the ring");
    visit_.checks.require(sum_of(ring_.address(), ring_.size(), 0) == sum_of(second, ring_.size(), 0),
                          "is seen at its beginning");
    visit_.shown = fmt::format("{} bytes twice in a row; windows past the end, between kernels and within one",
                               command::with_separators(ring_.size()));
  }

  // Each piece goes through a window whose middle is the end of the ring, and through both addresses in one kernel.
  void move_input() {
    std::uint64_t through = 0;
    std::uint64_t within = 0;
    for_each_piece(visit_, ring_.size(), [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
      std::copy(piece.begin(), piece.end(), source_.bytes().begin());
      advance_to(ring_.size() - piece.size() / 2 / gpu::checksum_word_bytes * gpu::checksum_word_bytes);
      gpu_.copy(ring_.write_window(piece.size()).value().value, source_.address(), piece.size());
      ring_.commit(piece.size());
      through += sum_of(ring_.read_window(piece.size()).value(), piece.size(), first_word);
      ring_.release(piece.size());
      within += gpu_.copy_and_checksum(ring_.address().value, source_.address(), (ring_.address() + ring_.size()).value,
                                       piece.size(), first_word);
    });
    require_checksum(visit_, through, "a kernel writes the input around the end of the ring, the next one reads it");
    require_checksum(visit_, within, "a kernel writes it at the beginning and, after the fence, reads it past the end");
    visit_.checks.require(ring_.readable() == 0 && ring_.writable() == ring_.size(), "the ring is empty again");
  }

 private:
  // One granule at least; half of what a stop may hold, since its source is as large.
  static std::size_t bytes_for(const Visit& visit, const Gpu& gpu) {
    const std::size_t granule = gpu.device().granularity();
    return std::max<std::size_t>(granule, window_bytes(visit.input.size(), granule, gpu.free_memory()) / 2);
  }

  // As if bytes had been written and read up to there.
  void advance_to(std::size_t offset) {
    const std::size_t here = ring_.write_position() % ring_.size();
    const std::size_t skipped = (offset + ring_.size() - here) % ring_.size();
    ring_.commit(skipped);
    ring_.release(skipped);
  }

  std::uint64_t sum_of(DeviceAddress address, std::size_t bytes, std::uint64_t first_word) {
    return gpu_.checksum(address.value, bytes, first_word);
  }

  Visit& visit_;
  Gpu& gpu_;
  std::uint64_t free_before_;
  RingBuffer ring_;
  ReachableHostMemory source_;
};

void visit_ring(Visit& visit) {
  RingTour ring(visit, require_first_gpu(visit));
  ring.look_at_it();
  ring.move_input();
}

}  // namespace

Stop ring_stop() {
  return {"ring", "Ring", "one memory twice in a row: every window of a ring is contiguous", visit_ring};
}

}  // namespace cuvmm::tour
