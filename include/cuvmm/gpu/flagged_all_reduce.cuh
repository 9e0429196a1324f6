// All-reduce of small content without a barrier: each rank writes what it has into every other rank's memory, four
// bytes beside each flag, and takes what has arrived. One trip over the link is all that it waits for. It moves twice
// the bytes, and all of them to every rank, so it is for what is small.
//
// Why no barrier is needed at the end: there are two buffers, used in turn. Who writes to a buffer again has finished
// the exchange in between, for which it had something from every rank; and a rank sends that in a later kernel than the
// one in which it read the buffer. In place is fine, since a thread writes only what it has sent and read itself.
#pragma once

#include "cuvmm/gpu/all_reduce.cuh"

namespace cuvmm::gpu {

inline constexpr std::uint64_t line_bytes = 8;  // of content

// How many values one block exchanges at most; a call has at most that many for each of its blocks.
template <class T>
[[nodiscard]] CUVMM_HOST_DEVICE constexpr std::uint64_t flagged_capacity(std::uint32_t blocks,
                                                                         std::uint32_t lines_per_block,
                                                                         std::uint32_t threads) noexcept {
  // Whole rows of threads, so that no block gets more than its lines whatever the length.
  const std::uint64_t rows = lines_per_block / threads;
  return rows * threads * blocks * (line_bytes / sizeof(T));
}

namespace detail {

// The lines of one block for one exchange, in the memory of rank `in`, from rank `from`.
struct LineBuffers {
  const Team& team;
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t epoch;

  [[nodiscard]] CUVMM_DEVICE Line* at(std::uint32_t in, std::uint32_t from) const {
    const std::uint64_t buffer = (std::uint64_t{block} * 2 + (epoch & 1)) * team.ranks + from;
    return team.lines[in] + buffer * team.lines_per_block;
  }
};

// Which of the lines of a call fall to one block: row after row of all threads. Line `line` of the block is line `i` of
// the call.
class BlockLines {
 public:
  template <class Block>
  CUVMM_DEVICE BlockLines(const Block& block, std::uint64_t lines)
      : lines_(lines),
        first_(std::uint64_t{block.index()} * block.threads()),
        stride_(std::uint64_t{block.count()} * block.threads()) {
    const std::uint64_t rest = lines % stride_;
    const std::uint64_t last_row = rest <= first_ ? 0 : rest - first_;
    count_ = lines / stride_ * block.threads() + (last_row < block.threads() ? last_row : block.threads());
  }

  [[nodiscard]] CUVMM_DEVICE std::uint64_t count() const { return count_; }

  // work(line, i) for those of the calling thread, until it returns false.
  template <class Block, class Work>
  CUVMM_DEVICE void for_each(const Block& block, Work work) const {
    std::uint64_t line = block.thread();
    for (std::uint64_t i = first_ + block.thread(); i < lines_; i += stride_, line += block.threads())
      if (!work(line, i)) return;
  }

 private:
  std::uint64_t lines_;
  std::uint64_t first_;
  std::uint64_t stride_;
  std::uint64_t count_;
};

template <class Memory>
CUVMM_DEVICE inline bool receive(const Memory& memory, const Line* line, std::uint32_t epoch, std::uint64_t time_limit,
                                 std::uint64_t& bits) {
  Deadline deadline(time_limit);
  for (;;) {
    const Line seen = memory.load_line(line);
    bits = std::uint64_t{seen.second} << 32 | seen.first;
    if (seen.first_flag == epoch && seen.second_flag == epoch) return true;
    if (deadline.has_passed(memory)) return false;
  }
}

// Flags are compared for equality, and epochs come again after 2^32 exchanges, where a line that was not used in all
// that time would look like new. So every 2^30 exchanges those lines of the buffer that this exchange leaves out are
// marked with an epoch that is over before it comes again. Nobody writes to them until the next but one exchange.
template <class Memory, class Block>
CUVMM_DEVICE inline void renew_unused_lines(const Memory& memory, const Block& block, const LineBuffers& buffers,
                                            std::uint64_t used) {
  if ((buffers.epoch & 0x3FFFFFFE) != 0) return;  // twice in a row: once for each buffer
  const Line renewed{0, buffers.epoch, 0, buffers.epoch};
  for (std::uint32_t from = 0; from < buffers.team.ranks; ++from)
    for (std::uint64_t i = used + block.thread(); i < buffers.team.lines_per_block; i += block.threads())
      memory.store_line(buffers.at(buffers.team.rank, from) + i, renewed);
}

}  // namespace detail

// `count` is at most flagged_capacity(). Inputs and outputs of other ranks are not used.
template <class T, class Memory, class Block>
CUVMM_DEVICE inline void all_reduce_flagged(const Memory& memory, const Block& block, const AllReduce<T>& call) {
  TeamCall<Memory, Block> team(memory, block, call.team);
  // Nothing to exchange would be no exchange, and the buffers would take turns too early.
  if (team.is_lost() || call.count == 0) return;
  constexpr std::uint64_t width = line_bytes / sizeof(T);
  const std::uint32_t rank = call.team.rank;
  const std::uint32_t epoch = team.next_line_epoch();
  const detail::LineBuffers buffers{call.team, block.index(), block.count(), epoch};
  const T* const input = call.inputs[rank];
  T* const output = call.outputs[rank];

  const std::uint64_t lines = (call.count + width - 1) / width;
  const detail::BlockLines own(block, lines);
  own.for_each(block, [&](std::uint64_t line, std::uint64_t i) {
    const std::uint64_t mine = detail::load_raw<std::uint64_t>(memory, input + i * width, call.count - i * width);
    const Line sent{static_cast<std::uint32_t>(mine), epoch, static_cast<std::uint32_t>(mine >> 32), epoch};
    for (std::uint32_t to = 0; to < call.team.ranks; ++to)
      if (to != rank) memory.store_line(buffers.at(to, rank) + line, sent);
    return true;
  });
  detail::renew_unused_lines(memory, block, buffers, own.count());
  own.for_each(block, [&](std::uint64_t line, std::uint64_t i) {
    const std::uint64_t left = call.count - i * width;
    const std::uint64_t mine = detail::load_raw<std::uint64_t>(memory, input + i * width, left);
    RunningSum<T, std::uint64_t> sum{};  // g++ does not see that there is a first rank
    for (std::uint32_t from = 0; from < call.team.ranks; ++from) {
      std::uint64_t bits = mine;
      if (from != rank && !detail::receive(memory, buffers.at(rank, from) + line, epoch, call.team.time_limit, bits)) {
        team.give_up_on(from);
        return false;
      }
      from == 0 ? sum.start(bits) : sum.add(bits);
    }
    detail::store_raw(memory, output + i * width, left, sum.result());
    return true;
  });
  team.finish();
}

}  // namespace cuvmm::gpu
