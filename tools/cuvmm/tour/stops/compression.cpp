// 4.16.5.2: compressible memory: asked for, and what came of it.
#include <fmt/core.h>

#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/call.hpp"
#include "gpu/checksum.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;

class CompressionTour {
 public:
  CompressionTour(Visit& visit, Gpu& gpu) : visit_(visit), gpu_(gpu), offered_(gpu.device().supports_compression()) {}
  CompressionTour(const CompressionTour&) = delete;
  CompressionTour& operator=(const CompressionTour&) = delete;
  ~CompressionTour() { gpu_.finish_work(); }  // a check that failed may have left a copy at work

  // Memory that was to have none must not be told to have it: what a driver tells would then mean nothing.
  void plain_memory() {
    MappedRange plain = MappedRange::create(visit_.driver, options(false, granule_));
    plain.append(granule_);
    visit_.checks.require(!reported(plain), "of memory made without a wish the driver says that it has no compression",
                          "it says that it has");
  }

  void wish() {
    const std::size_t size = window_bytes(visit_.input.size(), granule_, gpu_.free_memory());
    range_.emplace(MappedRange::create(visit_.driver, options(true, size)));
    range_->append(size);
    given_ = reported(*range_);
    visit_.checks.require(range_->properties().compression == given_,
                          fmt::format("asked for compression, the range tells what it got: {}", in_words()),
                          "the driver says otherwise");
    visit_.checks.require(offered_ || !given_, "none is given by a device that does not offer it");
    visit_.shown = fmt::format("compression {}, asked for, {}", offered_ ? "offered" : "not offered", in_words());
  }

  void move_input() {
    std::uint64_t seen = 0;
    for_each_piece(visit_, range_->size(), [&](std::uint64_t offset, std::span<std::byte> piece) {
      copy_bytes_to_device(visit_.driver, range_->address(), piece);
      seen += gpu_.checksum(range_->address().value, piece.size(), offset / gpu::checksum_word_bytes);
    });
    require_checksum(visit_, seen,
                     fmt::format("a kernel reads the input in memory where compression was {}", in_words()));
    range_.reset();
  }

  // A range that must have it has it or is refused.
  void insist() {
    MappedRangeOptions required = options(true, granule_);
    required.require_features = true;
    MappedRange range = MappedRange::create(visit_.driver, required);
    const Result<std::size_t> appended = range.try_append(granule_);
    if (given_) {
      visit_.checks.require(appended && range.properties().compression, "where it is required it is given again",
                            appended ? "it was not" : appended.failure().message());
      return;
    }
    visit_.checks.require(!appended && appended.failure().kind == ErrorKind::not_supported,
                          "where it is required and not given, growing is refused as not supported",
                          appended ? "the range grew" : appended.failure().message());
    visit_.checks.require(range.mapped_bytes() == 0, "and leaves no memory behind");
  }

 private:
  [[nodiscard]] MappedRangeOptions options(bool compression, std::size_t bytes) const {
    return {.capacity = bytes,
            .memory = {.location = gpu_.location(), .compression = compression},
            .chunks = ChunkPolicy::exact()};
  }

  // What the driver tells of the range's memory.
  [[nodiscard]] bool reported(const MappedRange& range) const {
    abi::CUmemAllocationProp got{};
    call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(visit_.driver.interface(), &got,
                                                             range.memory_at(0).memory().handle());
    return got.allocFlags.compressionType != 0;
  }

  [[nodiscard]] const char* in_words() const { return given_ ? "given" : "not given"; }

  Visit& visit_;
  Gpu& gpu_;
  bool offered_;
  bool given_ = false;
  std::size_t granule_ = gpu_.device().granularity(Granularity::minimum, {.compression = true});
  std::optional<MappedRange> range_;
};

void visit_compression(Visit& visit) {
  CompressionTour compression(visit, require_first_gpu(visit));
  compression.plain_memory();
  compression.wish();
  compression.move_input();
  compression.insist();
}

}  // namespace

Stop compression_stop() {
  return {"4.16.5.2", "Compression", "compressible memory asked for, what was got, and doing without",
          visit_compression};
}

}  // namespace cuvmm::tour
