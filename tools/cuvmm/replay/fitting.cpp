#include "replay/fitting.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

#include "cuvmm/error.hpp"
#include "driver/call.hpp"

namespace cuvmm::replay {
namespace {

using driver::call;
using driver::EntryPoint;

abi::CUmemAllocationProp properties_of_chunks() {
  abi::CUmemAllocationProp properties{};
  properties.type = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

// Chunks, those of them that are free, and ranges that others are mapped to.
class Chunks {
 public:
  Chunks(const Driver& driver, std::uint64_t chunk_bytes, std::size_t ranges)
      : calls_(driver.interface()), chunk_bytes_(chunk_bytes), ranges_(ranges) {}
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;
  Chunks(Chunks&&) = delete;
  Chunks& operator=(Chunks&&) = delete;
  ~Chunks() {
    for (const Range& each : ranges_) {
      if (each.mapped != 0) calls_.cuMemUnmap(each.address, each.mapped);
      if (each.bytes != 0) calls_.cuMemAddressFree(each.address, each.bytes);
    }
    for (const auto each : all_) calls_.cuMemRelease(each);
  }

  // False where the device has not so many.
  [[nodiscard]] bool create(std::uint64_t count) {
    const abi::CUmemAllocationProp properties = properties_of_chunks();
    for (std::uint64_t i = 0; i < count; ++i) {
      abi::CUmemGenericAllocationHandle handle = 0;
      try {
        call<EntryPoint::cuMemCreate>(calls_, &handle, chunk_bytes_, &properties, 0U);
      } catch (const OutOfDeviceMemory&) {
        return false;
      }
      all_.push_back(handle);
      free_.push_back(handle);
    }
    return true;
  }
  void map(std::size_t number, std::uint64_t count) {
    if (count > free_.size()) throw std::logic_error("an allocation finds fewer chunks than were counted");
    Range& range = ranges_[number];
    call<EntryPoint::cuMemAddressReserve>(calls_, &range.address, count * chunk_bytes_, 0U, 0U, 0U);
    range.bytes = count * chunk_bytes_;
    for (; range.mapped < range.bytes; range.mapped += chunk_bytes_) {
      call<EntryPoint::cuMemMap>(calls_, range.address + range.mapped, chunk_bytes_, 0U, free_.back(), 0U);
      range.chunks.push_back(free_.back());
      free_.pop_back();
    }
    const abi::CUmemAccessDesc access{{abi::CU_MEM_LOCATION_TYPE_DEVICE, 0}, abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    call<EntryPoint::cuMemSetAccess>(calls_, range.address, range.bytes, &access, 1U);
  }
  void unmap(std::size_t number) {
    Range& range = ranges_[number];
    call<EntryPoint::cuMemUnmap>(calls_, range.address, range.mapped);
    range.mapped = 0;
    call<EntryPoint::cuMemAddressFree>(calls_, range.address, range.bytes);
    free_.insert(free_.end(), range.chunks.begin(), range.chunks.end());
    range = {};
  }

 private:
  struct Range {
    abi::CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t mapped = 0;
    std::vector<abi::CUmemGenericAllocationHandle> chunks{};
  };

  driver::Interface& calls_;
  std::uint64_t chunk_bytes_;
  std::vector<abi::CUmemGenericAllocationHandle> all_, free_;
  std::vector<Range> ranges_;
};

// An allocation as a rectangle in time and room.
struct Rectangle {
  std::size_t begin = 0;  // events
  std::size_t end = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;

  [[nodiscard]] bool meets(const Rectangle& other) const { return begin < other.end && other.begin < end; }
};

std::vector<Rectangle> rectangles_of(const traces::AllocationTrace& trace) {
  std::vector<Rectangle> rectangles(trace.allocations.size());
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    Rectangle& each = rectangles[trace.events[i].allocation];
    if (trace.events[i].frees) {
      each.end = i;
    } else {
      each = {i, trace.events.size(), trace.allocations[trace.events[i].allocation].bytes, 0};
    }
  }
  return rectangles;
}

// How high they come, each put at the lowest place that is free for all its life, in that order.
std::uint64_t height_of(std::vector<Rectangle> rectangles, const std::vector<std::size_t>& order) {
  std::uint64_t height = 0;
  std::vector<const Rectangle*> placed;  // from the lowest
  for (const std::size_t number : order) {
    Rectangle& each = rectangles[number];
    for (const Rectangle* other : placed) {
      if (!each.meets(*other)) continue;
      if (other->offset >= each.offset + each.bytes) break;
      each.offset = std::max(each.offset, other->offset + other->bytes);
    }
    height = std::max(height, each.offset + each.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), each.offset,
                                   [](std::uint64_t offset, const Rectangle* other) { return offset < other->offset; }),
                  &each);
  }
  return height;
}

}  // namespace

Fit needed_chunks(const traces::AllocationTrace& trace, std::uint64_t chunk_bytes) {
  Fit fit;
  fit.chunk_bytes = chunk_bytes;
  std::uint64_t chunks = 0, live = 0;
  for (const traces::AllocationEvent& event : trace.events) {
    const std::uint64_t bytes = trace.allocations[event.allocation].bytes;
    const std::uint64_t count = (bytes + chunk_bytes - 1) / chunk_bytes;
    chunks = event.frees ? chunks - count : chunks + count;
    live = event.frees ? live - bytes : live + bytes;
    fit.peak_live = std::max(fit.peak_live, live);
    if (chunks <= fit.chunks) continue;
    fit.chunks = chunks;
    fit.rounding_bytes = chunks * chunk_bytes - live;
  }
  std::uint64_t unit = chunk_bytes;
  for (const traces::Allocation& each : trace.allocations) unit = std::gcd(unit, each.bytes);
  fit.exact_scale = chunk_bytes / unit;
  return fit;
}

std::optional<std::uint64_t> packed_bytes(const traces::AllocationTrace& trace) {
  constexpr std::size_t most = 20'000;
  if (trace.allocations.size() > most) return std::nullopt;
  const std::vector<Rectangle> rectangles = rectangles_of(trace);
  using Worth = double (*)(const Rectangle&);
  constexpr std::array<Worth, 4> worths{
      [](const Rectangle& each) { return static_cast<double>(each.bytes); },
      [](const Rectangle& each) { return static_cast<double>(each.end - each.begin); },
      [](const Rectangle& each) {
        return static_cast<double>(each.end - each.begin) * static_cast<double>(each.bytes);
      },
      [](const Rectangle& each) { return -static_cast<double>(each.begin); },
  };
  std::uint64_t least = UINT64_MAX;
  for (const Worth worth : worths) {
    std::vector<std::size_t> order(rectangles.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return worth(rectangles[one]) > worth(rectangles[other]);
    });
    least = std::min(least, height_of(rectangles, order));
  }
  return least;
}

Fit fit(const traces::AllocationTrace& trace, const Bench& bench, const driver::CountingDriver& counting,
        const std::function<void()>& step) {
  const driver::CallCounts before = counting.snapshot();
  const abi::CUmemAllocationProp properties = properties_of_chunks();
  std::size_t granularity = 0;
  call<EntryPoint::cuMemGetAllocationGranularity>(bench.driver.interface(), &granularity, &properties,
                                                  abi::CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  Fit fit = needed_chunks(trace, granularity);
  Chunks chunks(bench.driver, granularity, trace.allocations.size());
  fit.fits = chunks.create(fit.chunks);
  for (const traces::AllocationEvent& event : trace.events) {
    if (!fit.fits) break;
    if (event.frees) {
      chunks.unmap(event.allocation);
    } else {
      chunks.map(event.allocation, (trace.allocations[event.allocation].bytes + granularity - 1) / granularity);
    }
    if (step) step();
  }
  fit.calls = counting.snapshot() - before;
  fit.packed_bytes = packed_bytes(trace);
  return fit;
}

}  // namespace cuvmm::replay
