#include "cuvmm/stitched_memory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "cuvmm/device.hpp"
#include "refusal.hpp"

namespace cuvmm {

namespace {

constexpr std::string_view function = "StitchedMemory::create";

// So many pieces a place balance the places to within two per cent of their memory; more are of no more use.
constexpr std::size_t useful_rounds = 64;

void write_to_standard_error(const std::string& warning) {
  std::fputs(fmt::format("cuvmm: {}\n", warning).c_str(), stderr);
}

}  // namespace

StitchedLayout StitchedLayout::cyclic(std::size_t bytes) {
  if (bytes == 0)
    raise(invalid_use("StitchedLayout::cyclic", "bytes = 0", "A piece is no less than the granularity",
                      "Give the size of a piece, or use StitchedLayout::block()"));
  return StitchedLayout(bytes);
}

// What is to be made: parts in whole granules, and who is to reach them.
class StitchedMemory::Plan {
 public:
  Plan(const Driver& driver, std::size_t bytes, const StitchedOptions& options)
      : driver_(driver), options_(options), bytes_(bytes) {}

  Result<void> make() {
    if (auto refused = check()) return std::move(*refused);
    for (const Location& each : options_.locations)
      granularity_ = std::max(granularity_, PhysicalMemory::granularity(driver_, properties_at(each)));
    total_ = align_up(bytes_, granularity_);
    if (options_.layout.is_cyclic() && options_.locations.size() > 1) {
      lay_out_in_pieces();
    } else {
      lay_out_in_blocks();
    }
    return find_who_reaches_it();
  }

  // All memory, in the order of its parts; none where one cannot be had.
  Result<std::vector<SharedPhysicalMemory>> acquire(PhysicalSource& source) const {
    std::vector<SharedPhysicalMemory> memories(parts_.size());
    for (const Location& location : options_.locations) {
      std::vector<std::size_t> sizes;
      for (const StitchedPart& part : parts_)
        if (part.location == location) sizes.push_back(part.bytes);
      if (sizes.empty()) continue;
      auto acquired = source.try_acquire_all(properties_at(location), sizes);
      if (!acquired) return acquired.failure();
      auto next = acquired->begin();
      for (std::size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].location == location) memories[i] = std::move(*next++);
    }
    return memories;
  }

  [[nodiscard]] MappedRangeOptions range_options() const {
    MappedRangeOptions made;
    made.capacity = total_;
    made.memory.location = options_.locations.front();
    made.grants = grants_;
    made.alignment = options_.alignment;
    made.source = options_.source;
    made.retire_queue = options_.retire_queue;
    made.device_wait = options_.device_wait;
    return made;
  }

  void warn() const {
    if (warning_.empty()) return;
    options_.on_warning ? options_.on_warning(warning_) : write_to_standard_error(warning_);
  }

 private:
  friend class StitchedMemory;

  [[nodiscard]] Failure refusal(std::string arguments, std::string rule, std::string way_out) const {
    return invalid_use(function, std::move(arguments), std::move(rule), std::move(way_out));
  }

  std::optional<Failure> check() const {
    const auto& locations = options_.locations;
    if (bytes_ == 0 || bytes_ > SIZE_MAX / 4)
      return refusal(fmt::format("bytes = {}", bytes_), "It has a size, which no machine's addresses are too few for",
                     "Give its size in bytes");
    if (locations.empty()) return refusal("locations = none", "Memory lies somewhere", "Name a place at least");
    for (auto each = locations.begin(); each != locations.end(); ++each)
      if (std::find(locations.begin(), each, *each) != each)
        return refusal(fmt::format("locations: {} is named twice", to_string(*each)), "Each place has one share",
                       "Name each place once");
    return std::nullopt;
  }

  [[nodiscard]] MemoryProperties properties_at(const Location& location) const {
    return {.location = location,
            .handle_types = location.kind == LocationKind::host ? HandleTypes() : options_.handle_types};
  }

  void lay_out_in_blocks() {
    const std::size_t places = options_.locations.size();
    const std::size_t granules = total_ / granularity_;
    std::size_t offset = 0;
    for (std::size_t i = 0; i < places; ++i) {
      const std::size_t bytes = (granules / places + (i < granules % places ? 1 : 0)) * granularity_;
      if (bytes != 0) parts_.push_back({options_.locations[i], offset, bytes});
      offset += bytes;
    }
  }

  void lay_out_in_pieces() {
    const std::size_t places = options_.locations.size();
    const std::size_t piece = std::min(options_.layout.piece_bytes(), total_);
    const std::size_t bytes = align_up(piece, granularity_);
    for (std::size_t offset = 0; offset < total_; offset += bytes)
      parts_.push_back({options_.locations[parts_.size() % places], offset, std::min(bytes, total_ - offset)});
    if (parts_.size() <= useful_rounds * places) return;
    const std::size_t enough = align_up(total_ / (useful_rounds * places) + 1, granularity_);
    warning_ = fmt::format(
        "{}: pieces of {} make {} mappings, each of which costs time to make, to grant and to give back. Pieces of {} "
        "make {}, and spread {} over {} places as evenly",
        function, format_bytes(bytes), parts_.size(), format_bytes(enough), (total_ + enough - 1) / enough,
        format_bytes(total_), places);
  }

  [[nodiscard]] bool holds_device_memory() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const StitchedPart& part) { return part.location.kind == LocationKind::device; });
  }

  // Of the places that have memory in it, the first that the device cannot reach.
  [[nodiscard]] std::optional<Location> out_of_reach(const Device& device) const {
    for (const Location& place : options_.locations) {
      const auto there = [&](const StitchedPart& part) { return part.location == place; };
      if (place.kind != LocationKind::device || place.id == device.ordinal().value) continue;
      if (std::none_of(parts_.begin(), parts_.end(), there)) continue;
      if (!device.can_access_peer(driver_.device(DeviceOrdinal(place.id)))) return place;
    }
    return std::nullopt;
  }

  Result<void> find_who_reaches_it() {
    std::vector<DeviceOrdinal> devices;
    for (const Location& each : options_.locations)
      if (each.kind == LocationKind::device) devices.emplace_back(each.id);
    for (const DeviceOrdinal each : options_.more_devices)
      if (std::find(devices.begin(), devices.end(), each) == devices.end()) devices.push_back(each);
    std::vector<std::string> reasons;
    for (const DeviceOrdinal each : devices) {
      const Device device = driver_.device(each);
      if (const auto place = out_of_reach(device)) {
        unreachable_.push_back(each);
        reasons.push_back(fmt::format("device {} cannot reach memory of {}", each.value, to_string(*place)));
      } else {
        grants_.push_back({device.location(), options_.rights});
      }
    }
    if (!holds_device_memory()) grants_.push_back({Location::host(), options_.rights});
    if (!unreachable_.empty() && (options_.require_all || grants_.empty())) return not_reached(reasons);
    return {};
  }

  [[nodiscard]] Failure not_reached(const std::vector<std::string>& reasons) const {
    Failure failure;
    failure.kind = ErrorKind::not_supported;
    failure.call = function;
    failure.arguments = options_.require_all ? "require_all = true" : "";
    failure.feature = "peer access";
    failure.reason = fmt::format("{}", fmt::join(reasons, "; "));
    failure.rule = options_.require_all ? "All devices that are named were to reach all of the memory"
                                        : "No device reaches all of the memory";
    failure.way_out = "Name places that reach each other (Device::can_access_peer)";
    if (options_.require_all) failure.way_out += ", or do without require_all";
    return failure;
  }

  const Driver& driver_;
  const StitchedOptions& options_;
  std::size_t bytes_;
  std::size_t granularity_ = 1;
  std::size_t total_ = 0;
  std::vector<StitchedPart> parts_;
  std::vector<AccessGrant> grants_;
  std::vector<DeviceOrdinal> unreachable_;
  std::string warning_;
};

StitchedMemory::StitchedMemory(MappedRange range, std::size_t size, Plan&& plan)
    : range_(std::move(range)),
      size_(size),
      parts_(std::move(plan.parts_)),
      unreachable_(std::move(plan.unreachable_)),
      warning_(std::move(plan.warning_)) {
  parts_.back().bytes = size_ - parts_.back().offset;
}

StitchedMemory::StitchedMemory(StitchedMemory&& other) noexcept
    : range_(std::move(other.range_)),
      size_(std::exchange(other.size_, 0)),
      parts_(std::exchange(other.parts_, {})),
      unreachable_(std::exchange(other.unreachable_, {})),
      warning_(std::exchange(other.warning_, {})) {}

StitchedMemory& StitchedMemory::operator=(StitchedMemory&& other) noexcept {
  if (this == &other) return *this;
  range_ = std::move(other.range_);
  size_ = std::exchange(other.size_, 0);
  parts_ = std::exchange(other.parts_, {});
  unreachable_ = std::exchange(other.unreachable_, {});
  warning_ = std::exchange(other.warning_, {});
  return *this;
}

void StitchedMemory::close() {
  range_.close();
  size_ = 0;
  parts_.clear();
  unreachable_.clear();
  warning_.clear();
}

Result<StitchedMemory> StitchedMemory::try_create(const Driver& driver, std::size_t bytes,
                                                  const StitchedOptions& options) try {
  Plan plan(driver, bytes, options);
  if (auto made = plan.make(); !made) return made.failure();
  auto range = MappedRange::try_create(driver, plan.range_options());
  if (!range) return range.failure();
  plan.warn();
  const auto memories = plan.acquire(*range->source());
  if (!memories) return memories.failure();
  if (auto mapped = range->try_append(*memories); !mapped) return mapped.failure();
  if (auto cut = range->try_truncate(bytes); !cut) return cut.failure();  // no chunk lies wholly behind that
  return StitchedMemory(std::move(range).value(), bytes, std::move(plan));
} catch (const Error& error) {  // of questions for the granularity and the devices
  return error.failure();
}

StitchedMemory StitchedMemory::create(const Driver& driver, std::size_t bytes, const StitchedOptions& options) {
  return try_create(driver, bytes, options).value();
}

std::vector<StitchedPart> StitchedMemory::parts_at(const Location& location) const {
  std::vector<StitchedPart> local;
  std::copy_if(parts_.begin(), parts_.end(), std::back_inserter(local),
               [&](const StitchedPart& part) { return part.location == location; });
  return local;
}

Location StitchedMemory::location_at(std::size_t offset) const {
  if (size_ == 0) raise(owns_nothing("StitchedMemory::location_at", "stitched memory"));
  if (offset >= size_)
    raise(invalid_use("StitchedMemory::location_at", fmt::format("offset = {} of {} bytes", offset, size_),
                      "The offset lies beyond the end", "Give one that is less than size()"));
  const auto behind = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                       [](std::size_t at, const StitchedPart& part) { return at < part.offset; });
  return std::prev(behind)->location;
}

}  // namespace cuvmm
