#include "sleep/content_copy.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "cuvmm/context.hpp"
#include "relaxed_capture_mode.hpp"
#include "sleep/pinned_memory.hpp"
#include "sleep/stream.hpp"

namespace cuvmm::sleep {

namespace {

Result<void> copy(Stream& stream, Direction direction, std::byte* host, const Piece& piece) {
  return direction == Direction::to_backup ? stream.copy_to_host(host, piece.address, piece.bytes)
                                           : stream.copy_to_device(piece.address, host, piece.bytes);
}

// The pieces of all, cut to what fits into a staging buffer.
std::vector<Piece> cut(std::span<const Piece> pieces, std::size_t most) {
  std::vector<Piece> blocks;
  for (Piece rest : pieces)
    while (rest.bytes != 0) {
      Piece block = rest;
      block.bytes = std::min(rest.bytes, most);
      blocks.push_back(block);
      rest.address = rest.address + block.bytes;
      rest.at += block.bytes;
      rest.bytes -= block.bytes;
    }
  return blocks;
}

struct Buffer {
  PinnedMemory memory;
  Event copied;
  std::optional<Piece> block{};  // being copied by the device
};
using Buffers = std::vector<Buffer>;

// Buffers of streams that were left behind, for ever, where leak checkers see that it is on purpose.
struct LeftBuffers {
  std::mutex mutex;
  std::list<Buffers> buffers;
};

LeftBuffers& left_buffers() {
  static LeftBuffers& all = *new LeftBuffers;
  return all;
}

// Blocks that several threads copy, each through two buffers of its own: while the device copies one, the thread copies
// the other.
class StagedCopy {
 public:
  StagedCopy(const Device& device, std::vector<Piece> blocks, std::size_t block_bytes, Direction direction,
             const LeftBehind& left_behind)
      : device_(device),
        blocks_(std::move(blocks)),
        block_bytes_(block_bytes),
        direction_(direction),
        left_behind_(left_behind) {}

  Result<void> run(unsigned threads) {
    std::vector<std::jthread> others;
    try {
      for (unsigned index = 1; index < threads; ++index) others.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // Fewer will do.
    }
    work();
    others.clear();
    return first_ ? Result<void>(*first_) : Result<void>();
  }

 private:
  void work() noexcept {
    try {
      if (auto done = copy_blocks(); !done) fail(done.failure());
    } catch (const Error& error) {
      fail(error.failure());
    } catch (const std::exception&) {
      fail(no_memory());
    }
  }

  static Failure no_memory() {
    Failure failure;
    failure.kind = ErrorKind::out_of_host_memory;
    return failure;
  }

  // The first failure is the one that is told; the others follow from it, or are the same.
  void fail(const Failure& failure) noexcept {
    const std::lock_guard lock(mutex_);
    next_ = blocks_.size();
    if (first_) return;
    try {
      first_ = failure;
    } catch (const std::bad_alloc&) {
      first_.emplace().kind = failure.kind;
    }
  }

  std::optional<Piece> take() noexcept {
    const std::size_t index = next_++;
    return index < blocks_.size() ? std::optional(blocks_[index]) : std::nullopt;
  }

  Result<void> copy_blocks() {
    driver::Interface& interface = device_.driver().interface();
    const RelaxedCaptureMode relaxed(interface);
    const CurrentContext context(device_);
    std::list<Buffers> held(1);  // in a list, so that leaving them behind takes no memory
    Buffers& buffers = held.front();
    for (int index = 0; index < 2; ++index) {
      auto memory = PinnedMemory::allocate(device_, block_bytes_);
      if (!memory) return memory.failure();
      auto event = Event::create(interface);
      if (!event) return event.failure();
      buffers.push_back({std::move(memory).value(), std::move(event).value()});
    }
    auto stream = Stream::create(interface, [&](abi::CUstream left) {  // gone before the buffers are
      left_behind_(left);
      LeftBuffers& all = left_buffers();
      const std::lock_guard lock(all.mutex);
      all.buffers.splice(all.buffers.end(), held);
    });
    if (!stream) return stream.failure();
    std::size_t turn = 0;
    for (auto block = take(); block; block = take(), turn ^= 1)
      if (auto copied = copy(*block, buffers[turn], *stream); !copied) return copied;
    for (int index = 0; index < 2; ++index, turn ^= 1)
      if (auto finished = finish(buffers[turn]); !finished) return finished;
    return stream->finish();
  }

  Result<void> copy(const Piece& block, Buffer& buffer, Stream& stream) {
    if (auto finished = finish(buffer); !finished) return finished;
    if (direction_ == Direction::from_backup)
      if (auto read = block.backup->read(block.at, {buffer.memory.data(), block.bytes}); !read) return read;
    if (auto copied = sleep::copy(stream, direction_, buffer.memory.data(), block); !copied) return copied;
    buffer.block = block;
    return buffer.copied.record(stream);
  }

  // What the device was copying with that buffer.
  Result<void> finish(Buffer& buffer) const {
    if (!buffer.block) return {};
    const Piece block = *std::exchange(buffer.block, std::nullopt);
    if (auto waited = buffer.copied.wait(); !waited) return waited;
    if (direction_ == Direction::from_backup) return {};
    return block.backup->write(block.at, {buffer.memory.data(), block.bytes});
  }

  const Device& device_;
  const std::vector<Piece> blocks_;
  const std::size_t block_bytes_;
  const Direction direction_;
  const LeftBehind& left_behind_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::optional<Failure> first_;
};

Result<void> copy_directly(const Device& device, std::span<const Piece> pieces, Direction direction,
                           const LeftBehind& left_behind) {
  const RelaxedCaptureMode relaxed(device.driver().interface());
  const CurrentContext context(device);
  auto stream = Stream::create(device.driver().interface(), left_behind);
  if (!stream) return stream.failure();
  for (const Piece& each : pieces)
    if (auto copied = copy(*stream, direction, each.backup->pinned(each.at), each); !copied) return copied;
  return stream->finish();
}

Result<void> copy_staged(const Device& device, std::span<const Piece> pieces, Direction direction,
                         const CopyOptions& options, const LeftBehind& left_behind) {
  constexpr std::size_t page = 4096;
  constexpr std::size_t buffers = 2;  // of a thread
  // Larger ones make no copy faster: they take longer to allocate, and leave the caches before they are copied on.
  constexpr std::size_t largest_block = 4_MiB;
  const std::size_t block =
      std::clamp(options.staging_bytes / (buffers * options.threads) / page * page, page, largest_block);
  std::vector<Piece> blocks = cut(pieces, block);
  const auto threads = static_cast<unsigned>(std::min<std::size_t>(options.threads, (blocks.size() + 1) / buffers));
  std::size_t largest = 0;
  for (const Piece& each : blocks) largest = std::max(largest, each.bytes);
  return StagedCopy(device, std::move(blocks), largest, direction, left_behind).run(threads);
}

}  // namespace

Result<void> copy_content(const Device& device, std::span<const Piece> pieces, Direction direction,
                          const CopyOptions& options, const LeftBehind& left_behind) {
  std::vector<Piece> direct;
  std::vector<Piece> staged;
  for (const Piece& each : pieces)
    if (each.bytes != 0) (each.backup->pinned(each.at) != nullptr ? direct : staged).push_back(each);
  if (!direct.empty())
    if (auto copied = copy_directly(device, direct, direction, left_behind); !copied) return copied;
  return staged.empty() ? Result<void>() : copy_staged(device, staged, direction, options, left_behind);
}

Result<void> copy_content_by_cpu(std::span<const Piece> pieces, Direction direction) {
  for (const Piece& each : pieces) {
    // Granted to the host: the CPU uses the same address.
    auto* const data = each.address.as_pointer<std::byte>();
    auto copied = direction == Direction::to_backup ? each.backup->write(each.at, {data, each.bytes})
                                                    : each.backup->read(each.at, {data, each.bytes});
    if (!copied) return copied;
  }
  return {};
}

}  // namespace cuvmm::sleep
