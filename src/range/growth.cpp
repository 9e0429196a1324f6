// How a range grows.
#include <fmt/format.h>

#include <algorithm>

#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "peer_refusal.hpp"
#include "range/mapped_range_impl.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::EntryPoint;
using driver::try_call;

void MappedRange::Impl::Growth::commit() noexcept {
  range_->size_ = new_size_;
  if (extent_.bytes != 0) range_->tell_after_map(extent_);
  range_ = nullptr;
}

// Addresses that are free: reserved, not waiting to be unmapped, not in quarantine.
Result<void> MappedRange::Impl::make_room(std::string_view call, const Extent& extent) {
  if (extent.end() > addresses_->size()) {
    const std::size_t missing = extent.end() - addresses_->size();
    if (auto extended = addresses_->extend(addresses_->size(), missing); !extended) {
      Failure failure = extended.failure();
      failure.call = call;
      failure.arguments = fmt::format("{}, {} of addresses are missing", name(), format_bytes(missing));
      return failure;
    }
  }
  if (auto free = wait_for_retired(call, extent); !free) return free;
  return addresses_->clear_quarantine(extent);
}

// Maps the chunks there, then grants run by run. Those that could not be mapped are taken out; the others are left to
// be undone.
Result<void> MappedRange::Impl::map_and_grant(const Extent& extent) {
  const auto first = chunks_.find(extent.offset);
  const auto last = chunks_.lower_bound(extent.end());
  for (auto next = first; next != last; ++next) {
    Result<void> mapped = addresses_->map(next->first, next->second);
    if (mapped) continue;
    for (auto each = next; each != last; each = chunks_.erase(each)) mapped_bytes_ -= each->second.size();
    return mapped;
  }
  if (descriptors_.empty()) return {};
  for (ChunkMap::const_iterator next = first; next != last;) {
    const auto run = addresses_->run_from(next, last);
    if (Result<void> granted = addresses_->set_access(run.extent, descriptors_); !granted) return granted;
    next = run.next;
  }
  return {};
}

void MappedRange::Impl::undo(const Extent& extent) noexcept {
  ChunkMap placed;
  take_out(placed, extent);
  quarantine_what_stays(std::move(placed));
}

// Unmaps the chunks, which are the range's no longer.
void MappedRange::Impl::quarantine_what_stays(ChunkMap chunks) noexcept {
  if (chunks.empty()) return;
  try {
    if (const Result<void> unmapped = addresses_->unmap(chunks); !unmapped) report_cleanup_failure(unmapped.failure());
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});  // no memory left to say what failed
  }
  addresses_->quarantine(std::move(chunks));
}

// Chunks that are still to be mapped; all of them, or none if there is no memory for that.
void MappedRange::Impl::insert(const Extent& extent, std::span<const SharedPhysicalMemory> memories) {
  try {
    std::size_t offset = extent.offset;
    for (const SharedPhysicalMemory& memory : memories) {
      chunks_.emplace(offset, memory);
      mapped_bytes_ += memory.size();
      offset += memory.size();
      if (memory.properties().location != properties_.location) several_locations_ = true;
    }
  } catch (...) {
    ChunkMap inserted;
    take_out(inserted, extent);
    throw;
  }
}

Result<MappedRange::Impl::Growth> MappedRange::Impl::place(const Extent& extent,
                                                           std::span<const SharedPhysicalMemory> memories,
                                                           std::size_t new_size) {
  insert(extent, memories);
  Growth growth(*this, extent, new_size);
  if (auto placed = map_and_grant(extent); !placed)
    return with_unreachable_told(placed.failure(), driver(), grants_, places());
  return growth;
}

namespace {

// Failures that a machine without a feature was seen to answer when it is asked for.
bool may_be_for_a_feature(const Failure& failure) noexcept {
  if (failure.rule_ids == "ACCESS-PEER") return false;
  return failure.code == abi::CUDA_ERROR_UNKNOWN || failure.code == abi::CUDA_ERROR_NOT_SUPPORTED ||
         failure.code == abi::CUDA_ERROR_INVALID_VALUE || failure.code == abi::CUDA_ERROR_INVALID_DEVICE;
}

Failure feature_missing(const char* feature, std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = "MappedRange::append";
  failure.arguments = "require_features = true";
  failure.rule = fmt::format("The range was to have {}", feature);
  failure.way_out = "Ask for it without require_features, and the range does without where it must";
  failure.feature = feature;
  failure.reason = std::move(reason);
  return failure;
}

}  // namespace

bool MappedRange::Impl::do_without_feature(const Failure& failure) {
  if (options_.require_features || features_known_ || !may_be_for_a_feature(failure)) return false;
  if (properties_.gpu_direct_rdma) {
    properties_.gpu_direct_rdma = false;
  } else if (properties_.compression) {
    properties_.compression = false;
  } else {
    return false;
  }
  return true;
}

// Features of device memory are not asked of the host's, nor handles of memory of the host at large.
MemoryProperties MappedRange::Impl::properties_at(const Location& location) const {
  MemoryProperties wanted = properties_;
  wanted.location = location;
  if (location.kind != LocationKind::device) wanted.compression = wanted.gpu_direct_rdma = false;
  if (location.kind == LocationKind::host) wanted.handle_types = {};
  return wanted;
}

// Fabric handles that were asked for beside others, and that the source did without. It asks the driver once.
Result<void> MappedRange::Impl::learn_handle_types(const MemoryProperties& asked_for,
                                                   const SharedPhysicalMemory& memory) {
  const HandleTypes got = memory.properties().handle_types;
  if (got == asked_for.handle_types) return {};
  if (options_.require_features) {
    const auto refusal = options_.source->fabric_refusal(asked_for.location);
    return feature_missing("fabric handles", refusal ? refusal->message() : "the driver refused them");
  }
  if (asked_for.location == properties_.location) properties_.handle_types = got;
  return {};
}

// Once for a range that asks for features: the driver may have granted less without a word.
Result<void> MappedRange::Impl::learn_what_was_got(const MemoryProperties& asked_for,
                                                   const SharedPhysicalMemory& memory) {
  if (auto learned = learn_handle_types(asked_for, memory); !learned) return learned;
  if (features_known_ || !(asked_for.gpu_direct_rdma || asked_for.compression)) return {};
  abi::CUmemAllocationProp got{};
  if (auto asked = try_call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(driver().interface(), &got,
                                                                                memory.memory().handle());
      !asked)
    return asked;
  const bool compression = got.allocFlags.compressionType != 0;
  const bool rdma = got.allocFlags.gpuDirectRDMACapable != 0;
  if (options_.require_features) {
    if (properties_.compression && !compression)
      return feature_missing("compression", "the driver created memory without it");
    if (properties_.gpu_direct_rdma && !rdma)
      return feature_missing("GPUDirect RDMA", "the driver created memory without it");
  }
  properties_.compression = properties_.compression && compression;
  properties_.gpu_direct_rdma = properties_.gpu_direct_rdma && rdma;
  features_known_ = true;
  return {};
}

Result<MappedRange::Impl::Growth> MappedRange::Impl::grow(std::string_view call, const Extent& extent,
                                                          std::span<const std::size_t> sizes, const Location& location,
                                                          std::size_t new_size) {
  if (auto room = make_room(call, extent); !room) return room.failure();
  const MemoryProperties before = properties_;
  for (;;) {
    const MemoryProperties wanted = properties_at(location);
    Failure failure;
    if (auto memories = options_.source->try_acquire_all(wanted, sizes); !memories) {
      failure = memories.failure();
    } else if (auto placed = place(extent, *memories, new_size); !placed) {
      failure = placed.failure();
    } else if (auto got = learn_what_was_got(wanted, memories->front()); !got) {
      failure = got.failure();
    } else {
      return placed;
    }
    if (!do_without_feature(failure)) {
      properties_ = before;
      return failure;
    }
  }
}

std::vector<std::size_t> MappedRange::Impl::chunk_sizes(const ChunkPolicy& policy, const Extent& extent,
                                                        const Location& location) const {
  std::size_t mapped = mapped_bytes_;
  // What grows elsewhere is no reason to take much here. Most ranges are of one location.
  if (several_locations_ || location != properties_.location)
    for (const auto& chunk : chunks_)
      if (chunk.second.properties().location != location) mapped -= chunk.second.size();
  // What is not asked for is no reason to wait for addresses, or to fail for want of them.
  const std::size_t free_until = addresses_->out_of_use_from(extent.end());
  const std::size_t end = std::max(std::min(addresses_->size(), free_until), extent.end());
  const std::vector<std::size_t> planned = policy.plan({mapped, extent.bytes, end - extent.offset, granularity_});
  std::vector<std::size_t> sizes;
  std::size_t offset = extent.offset;
  for (std::size_t left : planned) {
    while (left != 0) {  // a chunk lies in one reservation
      const std::size_t border = addresses_->reservation_end(offset);
      const std::size_t bytes = offset < border ? std::min(left, border - offset) : left;
      sizes.push_back(bytes);
      offset += bytes;
      left -= bytes;
    }
  }
  return sizes;
}

namespace {

std::size_t total_of(std::span<const std::size_t> sizes) {
  std::size_t total = 0;
  for (const std::size_t each : sizes) total += each;
  return total;
}

}  // namespace

// Where the chunks end that lie there without a gap; the offset itself if none does.
std::size_t MappedRange::Impl::mapped_from(std::size_t offset) const {
  auto chunk = range::chunk_at_or_after(chunks_, offset);
  if (chunk == chunks_.end() || chunk->first > offset) return offset;
  std::size_t end = range::extent_of(*chunk).end();
  while (++chunk != chunks_.end() && chunk->first == end) end += chunk->second.size();
  return end;
}

// A failure of memory that was to lie there, told as a misuse where there is no such device.
Failure MappedRange::Impl::with_missing_device_told(Failure failure, std::string_view call,
                                                    const Location& location) const try {
  if (failure.rule_ids != "CREATE-LOCATION" || location.kind != LocationKind::device) return failure;
  const auto missing = missing_device(call, location, "CREATE-LOCATION");
  return missing ? *missing : failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

Result<MappedRange::Impl::Growth> MappedRange::Impl::prepare_append(std::size_t bytes, const Location* location,
                                                                    std::size_t* begin) {
  constexpr std::string_view call = "MappedRange::append";
  const Location where = location != nullptr ? *location : properties_.location;
  const std::size_t mapped_end = range::end_of(chunks_);
  const bool elsewhere = !chunks_.empty() && std::prev(chunks_.end())->second.properties().location != where;
  // What is left behind the content serves it if it begins just there; where a hole lies between, it does not.
  const bool split = size_ < mapped_end && mapped_from(size_) != mapped_end;
  *begin = bytes != 0 && (elsewhere || split) ? std::max(size_, mapped_end) : size_;
  if (bytes > SIZE_MAX / 2 - *begin)
    return refusal(call, fmt::format("bytes = {}", bytes), "No range has that many addresses", "Append less",
                   "RANGE-FITS");
  const std::size_t end = *begin + bytes;
  if (bytes == 0 || end <= mapped_end) return Growth(*this, Extent(), bytes == 0 ? size_ : end);
  if (auto flaw = flaw_in_place({0, granularity_}, where))
    return refusal(call, to_string(where), std::move(flaw->rule), flaw->way_out, flaw->rule_id);
  Extent needed;
  needed.offset = std::max(mapped_end, *begin / granularity_ * granularity_);
  needed.bytes = align_up(end - needed.offset, granularity_);
  // Addresses first: a reservation that is chained on is a border for chunks.
  if (needed.end() > addresses_->size())
    if (auto room = make_room(call, needed); !room) {
      Failure failure = room.failure();
      if (failure.kind == ErrorKind::out_of_address_space) failure.asked_bytes = bytes;
      return failure;
    }
  const std::vector<std::size_t> sizes = chunk_sizes(options_.chunks, needed, where);
  auto growth = grow(call, {needed.offset, total_of(sizes)}, sizes, where, end);
  if (growth) return growth;
  Failure failure = growth.failure();
  if (!is_shortage(failure)) return with_missing_device_told(std::move(failure), call, where);
  if (total_of(sizes) > needed.bytes) {
    const std::vector<std::size_t> exact = chunk_sizes(ChunkPolicy::exact(), needed, where);
    auto smaller = grow(call, needed, exact, where, end);
    if (smaller) return smaller;
    failure = smaller.failure();
  }
  if (is_shortage(failure)) {
    failure.asked_bytes = bytes;
    failure.rounded_bytes = needed.bytes;
  }
  return failure;
}

Result<std::size_t> MappedRange::Impl::append(std::size_t bytes, const Location* location) {
  std::size_t begin = 0;
  auto growth = prepare_append(bytes, location, &begin);
  if (!growth) return growth.failure();
  growth->commit();
  return begin;
}

Result<std::size_t> MappedRange::Impl::append(std::span<const SharedPhysicalMemory> memories) {
  if (memories.empty()) return size_;
  const std::size_t begin = std::max(range::end_of(chunks_), align_up(size_, granularity_));
  if (auto mapped = map("MappedRange::append", begin, memories); !mapped) return mapped.failure();
  return begin;
}

// Why memory of that location cannot lie there.
std::optional<range::Flaw> MappedRange::Impl::flaw_in_place(const Extent& extent, const Location& location) const {
  const bool begins_well = is_aligned(extent.offset, granularity_);
  if (extent.bytes == 0 || !begins_well || !is_aligned(extent.bytes, granularity_))
    return range::Flaw{fmt::format("Offset and size are multiples of the granularity, {}, and there is a size",
                                   format_bytes(granularity_)),
                       "Round them: cuvmm::align_up(bytes, range.granularity())",
                       begins_well ? "CREATE-SIZE-GRANULARITY" : "MAP-ADDRESS-ALIGNED"};
  const auto host_grant = std::find_if(grants_.begin(), grants_.end(), [](const AccessGrant& each) {
    return each.location.kind != LocationKind::device;
  });
  if (location.kind == LocationKind::device && host_grant != grants_.end())
    return range::Flaw{"Device memory cannot be granted to the host, and the range's grants name it",
                       "Keep device memory and host memory in ranges of their own", "ACCESS-HOST-LOCATION"};
  return std::nullopt;
}

Result<void> MappedRange::Impl::map(std::size_t offset, std::size_t bytes) {
  constexpr std::string_view call = "MappedRange::map";
  const Extent extent{offset, bytes};
  if (auto flaw = flaw_in_place(extent, properties_.location))
    return refusal(call, fmt::format("offset = {}, bytes = {}", offset, bytes), std::move(flaw->rule), flaw->way_out,
                   flaw->rule_id);
  if (bytes > SIZE_MAX / 2 || offset > SIZE_MAX / 2 - bytes)
    return refusal(call, fmt::format("offset = {}, bytes = {}", offset, bytes), "No range has that many addresses",
                   "Map at a smaller offset", "RANGE-FITS");
  if (range::meets(chunks_, extent))
    return refusal(call, fmt::format("offset = {}, bytes = {}", offset, bytes), "Something is mapped there",
                   "Unmap it first, or use replace()", "MAP-FREE-ADDRESSES");
  if (extent.end() > addresses_->size())
    if (auto room = make_room(call, extent); !room) return room;
  // Exactly what was asked for: behind it something may be mapped.
  std::vector<std::size_t> sizes;
  for (std::size_t at = offset; at < extent.end();) {
    sizes.push_back(std::min(extent.end(), addresses_->reservation_end(at)) - at);
    at += sizes.back();
  }
  auto growth = grow(call, extent, sizes, properties_.location, std::max(size_, extent.end()));
  if (!growth) return growth.failure();
  growth->commit();
  return {};
}

// Where they end if the first begins at `offset`, one behind the other; refused where one of them may not lie there.
Result<std::size_t> MappedRange::Impl::end_of_memories(std::string_view call, std::size_t offset,
                                                       std::span<const SharedPhysicalMemory> memories) const {
  for (const SharedPhysicalMemory& memory : memories) {
    const auto refuse = [&](std::string rule, std::string way_out, std::string_view rule_id = {}) {
      return refusal(call, fmt::format("offset = {}", offset), std::move(rule), std::move(way_out), rule_id);
    };
    if (!memory) return refuse("There is no memory to map", "Pass memory of a source, of a range, or imported");
    // First of all: an end that wraps lies before its beginning.
    if (memory.size() > SIZE_MAX / 2 || offset > SIZE_MAX / 2 - memory.size())
      return refuse(fmt::format("No range has that many addresses, and the memory has {} bytes", memory.size()),
                    "Map at a smaller offset, and give memory the size that it was created with", "RANGE-FITS");
    if (memory.memory().driver() != driver())
      return refuse("Range and memory must come from the same driver", "Make both with one Driver");
    if (auto flaw = flaw_in_place({offset, memory.size()}, memory.properties().location))
      return refusal(call,
                     fmt::format("offset = {}, memory of {} on {}", offset, format_bytes(memory.size()),
                                 to_string(memory.properties().location)),
                     std::move(flaw->rule), flaw->way_out, flaw->rule_id);
    offset += memory.size();
  }
  return offset;
}

Result<void> MappedRange::Impl::check_free(std::string_view call, const Extent& extent) const {
  if (!range::meets(chunks_, extent)) return {};
  return refusal(call, fmt::format("offset = {}", extent.offset), "Something is mapped there",
                 "Unmap it first, or use replace()", "MAP-FREE-ADDRESSES");
}

// Of memories one behind the other, once the addresses are there.
Result<void> MappedRange::Impl::check_borders(std::string_view call, std::size_t offset,
                                              std::span<const SharedPhysicalMemory> memories) const {
  for (std::size_t at = offset; const SharedPhysicalMemory& memory : memories) {
    if (at + memory.size() > addresses_->reservation_end(at))
      return refusal(
          call, fmt::format("offset = {}", at), "The memory would lie across two reservations of the range",
          fmt::format("Map it at {}, or make the range with a larger capacity", addresses_->reservation_end(at)),
          "MAP-INSIDE-ONE-RESERVATION");
    at += memory.size();
  }
  return {};
}

Result<void> MappedRange::Impl::map(std::string_view call, std::size_t offset,
                                    std::span<const SharedPhysicalMemory> memories) {
  const auto end = end_of_memories(call, offset, memories);
  if (!end) return end.failure();
  const Extent extent{offset, *end - offset};
  if (auto free = check_free(call, extent); !free) return free;
  if (auto room = make_room(call, extent); !room) return room;
  if (auto fits = check_borders(call, offset, memories); !fits) return fits;
  auto growth = place(extent, memories, std::max(size_, extent.end()));
  if (!growth) return growth.failure();
  growth->commit();
  return {};
}

namespace {

// Memories one behind the other.
struct Run {
  range::Extent extent;
  std::span<const SharedPhysicalMemory> memories;
};

// Of memories whose offsets are sound; nothing where one does not begin behind the one before it.
std::optional<std::vector<Run>> runs_of(std::span<const MemoryAt> places,
                                        std::span<const SharedPhysicalMemory> memories) {
  std::vector<Run> runs;
  std::size_t begin = 0;  // of the run, in the list
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!runs.empty() && places[i].offset < runs.back().extent.end()) return std::nullopt;
    if (runs.empty() || places[i].offset != runs.back().extent.end()) {
      runs.push_back({{places[i].offset, 0}, {}});
      begin = i;
    }
    runs.back().extent.bytes += memories[i].size();
    runs.back().memories = memories.subspan(begin, i + 1 - begin);
  }
  return runs;
}

}  // namespace

Result<void> MappedRange::Impl::map(std::span<const MemoryAt> places) {
  constexpr std::string_view call = "MappedRange::map";
  std::vector<SharedPhysicalMemory> memories;
  memories.reserve(places.size());
  for (const MemoryAt& each : places) {
    memories.push_back(each.memory);
    if (auto end = end_of_memories(call, each.offset, std::span(&memories.back(), 1)); !end) return end.failure();
  }
  const auto runs = runs_of(places, memories);
  if (!runs)
    return refusal(call, fmt::format("{} memories", places.size()),
                   "Each of several memories begins where the one before it ends, or behind that",
                   "Give them in the order of their offsets", "MAP-FREE-ADDRESSES");
  for (const Run& each : *runs)
    if (auto free = check_free(call, each.extent); !free) return free;
  for (const Run& each : *runs)
    if (auto room = make_room(call, each.extent); !room) return room;
  for (const Run& each : *runs)
    if (auto fits = check_borders(call, each.extent.offset, each.memories); !fits) return fits;
  std::vector<Growth> growths;
  growths.reserve(runs->size());
  std::size_t new_size = size_;
  for (const Run& each : *runs) {
    new_size = std::max(new_size, each.extent.end());
    auto growth = place(each.extent, each.memories, new_size);
    if (!growth) return growth.failure();
    growths.push_back(std::move(growth).value());
  }
  for (Growth& each : growths) each.commit();
  return {};
}

Result<void> try_append_all(std::span<const RangeAppend> appends) {
  std::vector<MappedRange::Impl::Changing> changing;  // ends after the growths
  changing.reserve(appends.size());
  std::vector<MappedRange::Impl::Growth> growths;
  growths.reserve(appends.size());
  const auto refuse = [&](std::size_t i, Failure failure) {
    failure.arguments = fmt::format("appends[{}] of {}{}{}", i, appends.size(), failure.arguments.empty() ? "" : ": ",
                                    failure.arguments);
    return failure;
  };
  for (std::size_t i = 0; i < appends.size(); ++i) {
    const auto same = [&](const RangeAppend& other) { return other.range == appends[i].range; };
    const bool twice = std::any_of(appends.begin(), appends.begin() + static_cast<std::ptrdiff_t>(i), same);
    if (appends[i].range == nullptr || twice)
      return refuse(
          i, invalid_use("cuvmm::append_all", {}, twice ? "The range is named twice" : "The range is a null pointer",
                         "Name each range once, with the bytes that it is to grow by"));
    const auto& range = appends[i].range->impl_;
    if (!range) return refuse(i, MappedRange::Impl::nothing_left("cuvmm::append_all"));
    if (range->changing_) return refuse(i, range->already_changing("cuvmm::append_all"));
    changing.emplace_back(*range);
    std::size_t begin = 0;
    auto growth = range->prepare_append(appends[i].bytes, nullptr, &begin);
    if (!growth) return refuse(i, growth.failure());
    growths.push_back(std::move(growth).value());
  }
  for (auto& growth : growths) growth.commit();
  for (auto& each : changing) each.succeeded();
  return {};
}

}  // namespace cuvmm
