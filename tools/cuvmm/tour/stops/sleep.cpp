// Memory that sleeps: its bytes leave the device, and come back at the same pointer.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "command/words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/sleepable_memory.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

// A group for each place that content can be kept in, and one whose content is discarded. All are as large, and one is
// awake at a time. Content is copied by one thread, so that each tour makes the same calls.
class SleepTour {
 public:
  SleepTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        size_(bytes_for(visit, gpu)),
        sample_(sample_of_input(visit.input, size_)),
        memory_(SleepableMemory::create(visit.driver, {.staging_bytes = std::size_t{4} << 20, .copy_threads = 1})) {}
  SleepTour(const SleepTour&) = delete;
  SleepTour& operator=(const SleepTour&) = delete;
  ~SleepTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // Without content: no stream and no host memory takes part, so that the device's free memory tells.
  void give_memory_back() {
    SleepableRange range = add(SleepingContent::discarded);
    require_accepted(visit_.checks, gpu_.try_fill(range.address().value, size_, pattern), "a kernel's store");
    const std::uint64_t generation = range.range().generation();
    const std::uint64_t free_before = gpu_.free_memory();
    const SleepReport slept = memory_.sleep(range.tag());
    require_comes_back(visit_, gpu_, free_before, size_, "memory that falls asleep is the device's again");
    visit_.checks.require(slept.bytes_given_back == size_ && slept.bytes_saved == 0, "and is reported as given back",
                          fmt::format("{} bytes of {} are", slept.bytes_given_back, size_));
    require_unreachable(range);
    const WakeReport woke = memory_.wake(range.tag());
    visit_.checks.require(woke.lost.size() == 1 && woke.lost[0].name == range.name() && woke.lost[0].bytes == size_,
                          "waking tells what has lost its content");
    visit_.checks.require(range.range().generation() > generation, "and the range, that its pages are others");
    require_usable(range);
    memory_.sleep(range.tag());
    ranges_.push_back(std::move(range));
  }

  void keep_content() {
    for (const SleepingContent content : {SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file})
      keep_content(content);
    visit_.shown = fmt::format("{} given back and woken at the same pointer: discarded, and kept in {}",
                               command::bytes_in_words(size_), "pinned memory, pageable memory and a file");
  }

  // Each piece sleeps in each of the places.
  void move_input() {
    std::vector<std::uint64_t> seen(ranges_.size());
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      for (std::size_t each = first_kept; each < ranges_.size(); ++each) {
        SleepableRange& range = ranges_[each];
        memory_.wake(range.tag());
        copy_bytes_to_device(range.range(), 0, piece);
        memory_.sleep(range.tag());
        memory_.wake(range.tag());
        seen[each] += gpu_.checksum(range.range().address().value, piece.size(), offset / gpu::checksum_word_bytes);
        memory_.sleep(range.tag());
      }
    });
    for (std::size_t each = first_kept; each < ranges_.size(); ++each)
      require_checksum(visit_, seen[each],
                       fmt::format("a kernel reads the input that slept, content {}", ranges_[each].tag()));
  }

 private:
  // Half of what a stop may hold, since the copies of the library take pinned memory besides.
  static std::size_t bytes_for(const Visit& visit, const Gpu& gpu) {
    const std::size_t granule = gpu.device().granularity();
    const std::uint64_t window = window_bytes(visit.input.size(), granule, gpu.free_memory());
    // A driver takes memory for page tables as well, as much as a granule at a time: two can be told from that.
    return std::max<std::size_t>(2 * granule, window / 2 / granule * granule);
  }

  [[nodiscard]] SleepableRange add(SleepingContent content) {
    MappedRange range = MappedRange::create(
        visit_.driver, {.capacity = size_, .memory = {gpu_.location()}, .chunks = ChunkPolicy::exact()});
    range.append(size_);
    const std::string name(to_string(content));
    return memory_.add(name, std::move(range), {.content = content}, name);
  }

  void keep_content(SleepingContent content) {
    SleepableRange range = add(content);
    const std::string& tag = range.tag();
    copy_bytes_to_device(range.range(), 0, sample_);
    const SleepReport slept = memory_.sleep(tag);
    visit_.checks.require(slept.bytes_given_back == size_ && slept.bytes_saved == size_,
                          fmt::format("content {}: memory is given back, and the content saved", tag),
                          fmt::format("{} bytes are, and {}", slept.bytes_given_back, slept.bytes_saved));
    const SleepHoldings held = memory_.holdings();
    visit_.checks.require(held_for(content, held) >= size_, "which it is told is held there");
    const WakeReport woke = memory_.wake(tag);
    visit_.checks.require(woke.lost.empty() && woke.bytes_restored == size_, "waking loses nothing of it");
    ContentChecksum expected;
    expected.add(sample_);
    const std::uint64_t seen = gpu_.checksum(range.range().address().value, size_, 0);
    visit_.checks.require(seen == expected.value(), "a kernel reads the bytes that slept at the same pointer",
                          fmt::format("their checksum is {:016x}", seen));
    require_usable(range);
    memory_.sleep(tag);
    ranges_.push_back(std::move(range));
  }

  static std::size_t held_for(SleepingContent content, const SleepHoldings& held) noexcept {
    if (content == SleepingContent::pinned) return held.pinned_bytes;
    return content == SleepingContent::pageable ? held.pageable_bytes : held.file_bytes;
  }

  // While it sleeps: the driver refuses the pointer, the library the range, and nobody else gets the addresses.
  void require_unreachable(SleepableRange& range) {
    require_refused(visit_.checks, driver_.cuMemsetD8(range.address().value, 0, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a memset of what sleeps");
    bool refused = false;
    try {
      static_cast<void>(range.range());
    } catch (const InvalidUse&) {
      refused = true;
    }
    visit_.checks.require(refused, "the range is refused before it is used");
    const auto elsewhere = AddressReservation::create(visit_.driver, size_, 0, range.address());
    visit_.checks.require(elsewhere.address() != range.address(), "its addresses are reserved meanwhile");
  }

  void require_usable(SleepableRange& range) {
    require_rights(visit_, range.range().address(), gpu_.location(), AccessRights::read_write, "what is awake again");
    require_accepted(visit_.checks, gpu_.try_fill(range.address().value, size_, pattern),
                     "a kernel's store through the pointer");
  }

  static constexpr std::uint64_t pattern = 0x0123456789ABCDEF;
  static constexpr std::size_t first_kept = 1;  // of the ranges; the one before has no content

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t size_;
  std::vector<std::byte> sample_;
  SleepableMemory memory_;
  std::vector<SleepableRange> ranges_;
};

void visit_sleep(Visit& visit) {
  SleepTour sleep(visit, require_first_gpu(visit));
  sleep.give_memory_back();
  sleep.keep_content();
  sleep.move_input();
}

}  // namespace

Stop sleep_stop() {
  return {"sleep", "Sleep", "memory that is given back for a while, and its content, which comes back or is told lost",
          visit_sleep};
}

}  // namespace cuvmm::tour
