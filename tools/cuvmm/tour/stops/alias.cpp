// 4.16.5.3: one memory at several addresses: written through one, read through the other, and a view that only reads.
#include <fmt/core.h>

#include <algorithm>

#include "command/words.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"
#include "tour/access_probe.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

class AliasTour {
 public:
  AliasTour(Visit& visit, Gpu& gpu)
      : visit_(visit),
        driver_(visit.driver.interface()),
        gpu_(gpu),
        size_(window_bytes(visit.input.size(), gpu.device().granularity(), gpu.free_memory())),
        range_(make_range(AccessRights::read_write)),
        alias_(make_range(AccessRights::read_write)),
        view_(make_range(AccessRights::read)),
        source_(visit.driver, size_) {
    range_.append(size_);
  }
  AliasTour(const AliasTour&) = delete;
  AliasTour& operator=(const AliasTour&) = delete;
  ~AliasTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // The same memory behind two more pointers.
  void map_again() {
    const std::uint64_t free_before = gpu_.free_memory();
    alias_.append(range_.memory_at(0));
    view_.append(range_.memory_at(0));
    const std::uint64_t free_after = gpu_.free_memory();
    visit_.checks.require(range_.address() != alias_.address() && alias_.address() != view_.address(),
                          "one memory lies behind three pointers");
    visit_.checks.require(free_after + 2 * size_ > free_before, "the other two took no memory",
                          fmt::format("{} bytes were free before, {} after", free_before, free_after));
    visit_.shown =
        fmt::format("{} bytes behind three pointers, one of them read-only", command::with_separators(size_));
  }

  // All of it, whatever the input's size: what is written through one pointer is what the others show.
  void show_the_same() {
    constexpr std::uint64_t pattern = 0x0123456789ABCDEF;
    require_accepted(visit_.checks, gpu_.try_fill(range_.address().value, size_, pattern),
                     "a kernel's store to all of the memory");
    const std::uint64_t here = checksum(range_, size_, 0);
    visit_.checks.require(checksum(alias_, size_, 0) == here && checksum(view_, size_, 0) == here,
                          "what a kernel wrote through one pointer, the next kernel reads through the others");
  }

  // The host puts the bytes where a kernel can read them; no copy by the driver takes part.
  void move_input() {
    std::uint64_t within = 0;
    std::uint64_t across = 0;
    for_each_piece(visit_, size_, [&](std::uint64_t offset, std::span<std::byte> piece) {
      const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
      std::copy(piece.begin(), piece.end(), source_.bytes().begin());
      within += gpu_.copy_and_checksum(range_.address().value, source_.address(), alias_.address().value, piece.size(),
                                       first_word);
      across += checksum(view_, piece.size(), first_word);
    });
    require_checksum(visit_, within,
                     "a kernel writes the input through one pointer and, after the fence, reads it through another");
    require_checksum(visit_, across, "the next kernel reads it through the read-only pointer");
  }

  // Rights belong to the mapping, not to the memory.
  void try_to_write() {
    require_rights(visit_, range_.address(), gpu_.location(), AccessRights::read_write, "the first pointer");
    require_rights(visit_, view_.address(), gpu_.location(), AccessRights::read, "the read-only pointer");
    const std::uint64_t before = checksum(range_, size_, 0);
    const unsigned char byte = 0xFF;
    require_refused(visit_.checks, driver_.cuMemcpyHtoD(view_.address().value, &byte, 1),
                    {abi::CUDA_ERROR_INVALID_VALUE}, "a copy through the read-only pointer");
    require_refused(visit_.checks, driver_.cuMemsetD8(view_.address().value, byte, 1), {abi::CUDA_ERROR_INVALID_VALUE},
                    "a memset through the read-only pointer");
    const abi::CUresult stored = in_child(AccessRights::read);
    visit_.checks.require(is_fault(stored),
                          "a kernel's store through a read-only pointer to memory that is writable "
                          "elsewhere faults",
                          fmt::format("the driver answered {}", driver::result_name(stored)));
    require_accepted(visit_.checks, in_child(AccessRights::read_write),
                     "a kernel's store through a second pointer with the right to write");
    visit_.checks.require(checksum(range_, size_, 0) == before, "what was refused changed nothing");
    require_accepted(visit_.checks, driver_.cuMemsetD8(alias_.address().value, byte, 1),
                     "a memset through the pointer that may write");
    require_accepted(visit_.checks, driver_.cuCtxSynchronize(), "the wait for that memset");
  }

 private:
  [[nodiscard]] MappedRange make_range(AccessRights rights) const {
    return MappedRange::create(visit_.driver, {.capacity = size_,
                                               .memory = {gpu_.location()},
                                               .grants = {{gpu_.location(), rights}},
                                               .chunks = ChunkPolicy::exact()});
  }

  std::uint64_t checksum(const MappedRange& range, std::uint64_t bytes, std::uint64_t first_word) {
    return gpu_.checksum(range.address().value, bytes, first_word);
  }

  [[nodiscard]] abi::CUresult in_child(AccessRights rights) const {
    return run_in_child(AccessProbe{.driver = visit_.choice,
                                    .devices = static_cast<int>(visit_.gpus.size()),
                                    .toucher = gpu_.ordinal(),
                                    .grants = {static_cast<int>(rights)},
                                    .touch = Touch::store,
                                    .alias = true});
  }

  Visit& visit_;
  driver::Interface& driver_;
  Gpu& gpu_;
  std::size_t size_;
  MappedRange range_;
  MappedRange alias_;
  MappedRange view_;
  ReachableHostMemory source_;
};

void visit_alias(Visit& visit) {
  AliasTour aliases(visit, require_first_gpu(visit));
  aliases.map_again();
  aliases.show_the_same();
  aliases.move_input();
  aliases.try_to_write();
}

}  // namespace

Stop alias_stop() {
  return {"4.16.5.3", "Aliases", "one memory behind several pointers, with the fence, and a view that only reads",
          visit_alias};
}

}  // namespace cuvmm::tour
