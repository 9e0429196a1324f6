#include "range/range_addresses.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "clean_up.hpp"
#include "driver/call.hpp"
#include "mapping_refusal.hpp"
#include "owner_states.hpp"

namespace cuvmm::range {

using driver::EntryPoint;
using driver::try_call;

Result<std::shared_ptr<RangeAddresses>> RangeAddresses::reserve(const Driver& driver, std::size_t wanted,
                                                                std::size_t least, std::size_t granularity,
                                                                std::size_t alignment) {
  for (std::size_t bytes = wanted;;) {
    auto reservation = AddressReservation::try_create(driver, bytes, alignment);
    if (reservation) return std::make_shared<RangeAddresses>(std::move(reservation).value());
    const Failure& failure = reservation.failure();
    if (failure.kind != ErrorKind::out_of_address_space || bytes <= least) return failure;
    do bytes /= 2;
    while (bytes > failure.largest_hole_bytes.value_or(bytes));
    bytes = std::max(least, bytes / granularity * granularity);
  }
}

RangeAddresses::RangeAddresses(AddressReservation first)
    : driver_(first.driver()), address_(first.address()), first_size_(first.size()), size_(first.size()) {
  reservations_.push_back(std::move(first));
}

Result<void> RangeAddresses::extend(std::size_t wanted, std::size_t least) {
  const DeviceAddress end = address() + size_;
  std::optional<Failure> failure;
  for (const std::size_t bytes : {std::max(wanted, least), least}) {
    auto next = AddressReservation::try_create(driver(), bytes, 0, end);
    if (next && next->address() == end) {
      const std::lock_guard lock(mutex_);
      reservations_.push_back(std::move(next).value());
      size_ += bytes;
      chained_ = true;
      return {};
    }
    if (!next) failure = next.failure();
  }
  if (!failure) {
    failure.emplace();
    failure->kind = ErrorKind::out_of_address_space;
    failure->rule = "The addresses behind the range are taken, and a range is contiguous";
  }
  failure->asked_bytes = least;
  failure->way_out = "Make the range with a larger capacity: addresses without memory cost nothing";
  return std::move(*failure);
}

void RangeAddresses::give_back_behind(std::size_t offset) noexcept {
  while (size_ > offset && reservations_.size() > 1) {
    const std::size_t begin = size_ - reservations_.back().size();
    if (begin < offset || out_of_use_from(begin) != SIZE_MAX) return;
    try {
      reservations_.back().free();
    } catch (const Error& error) {
      report_cleanup_failure(error.failure());
      return;
    } catch (const std::bad_alloc&) {
      report_cleanup_failure(Failure{});  // no memory left to say what failed
      return;
    }
    const std::lock_guard lock(mutex_);
    reservations_.pop_back();
    size_ = begin;
    chained_ = reservations_.size() > 1;
  }
}

std::size_t RangeAddresses::reservation_end(std::size_t offset) const noexcept {
  if (!chained_) return first_size_;
  const std::lock_guard lock(mutex_);
  std::size_t end = 0;
  for (const AddressReservation& each : reservations_) {
    end += each.size();
    if (offset < end) break;
  }
  return end;
}

bool may_have_been_done(const Failure& failure) noexcept {
  return failure.kind == ErrorKind::driver_failure || failure.kind == ErrorKind::device_lost;
}

Result<void> RangeAddresses::map(std::size_t offset, const SharedPhysicalMemory& memory) {
  Result<void> mapped = try_call<EntryPoint::cuMemMap>(driver().interface(), (address() + offset).value, memory.size(),
                                                       std::size_t{0}, memory.memory().handle(), 0ULL);
  if (!mapped && may_have_been_done(mapped.failure())) unmap_if_mapped(offset, memory);
  if (!mapped)
    return with_mapping_told(mapped.failure(), driver(), memory.properties(), address(), offset, memory.size());
  return mapped;
}

// Only for addresses that the range knows to be free: what may have been mapped there is its own, and must not stay.
// Where nothing was mapped this is no harm.
void RangeAddresses::unmap_if_mapped(std::size_t offset, const SharedPhysicalMemory& memory) {
  ChunkMap chunk;
  chunk.emplace(offset, memory);
  const Result<void> unmapped = unmap(chunk);
  if (unmapped || !is_mapped(offset)) return;
  report_cleanup_failure(unmapped.failure());
  quarantine(std::move(chunk));
}

// In case of doubt it is: only that nothing is there is a clear answer.
bool RangeAddresses::is_mapped(std::size_t offset) const {
  driver::Interface& interface = driver().interface();
  unsigned long long handle = 0;
  const abi::CUresult result = interface.cuMemRetainAllocationHandle(&handle, (address() + offset).as_pointer());
  if (result == abi::CUDA_SUCCESS) clean_up<EntryPoint::cuMemRelease>(interface, handle);
  return result != abi::CUDA_ERROR_INVALID_VALUE;
}

Result<void> RangeAddresses::set_access(const Extent& run, std::span<const abi::CUmemAccessDesc> grants) const {
  return try_call<EntryPoint::cuMemSetAccess>(driver().interface(), (address() + run.offset).value, run.bytes,
                                              grants.data(), grants.size());
}

RangeAddresses::Run RangeAddresses::run_from(ChunkMap::const_iterator first,
                                             ChunkMap::const_iterator end) const noexcept {
  Extent extent = extent_of(*first);
  const std::size_t border = reservation_end(extent.offset);
  auto next = std::next(first);
  for (; next != end && next->first == extent.end() && next->first != border; ++next)
    extent.bytes += next->second.size();
  return {extent, next};
}

Result<void> RangeAddresses::unmap(ChunkMap& chunks) const {
  std::size_t bytes = 0;
  return unmap(chunks, chunks.cbegin(), chunks.cend(), bytes);
}

Result<void> RangeAddresses::unmap(ChunkMap& chunks, ChunkMap::const_iterator first, ChunkMap::const_iterator last,
                                   std::size_t& bytes) const {
  const auto unmap_extent = [&](const Extent& extent) {
    Result<void> unmapped =
        try_call<EntryPoint::cuMemUnmap>(driver().interface(), (address() + extent.offset).value, extent.bytes);
    if (unmapped) bytes -= extent.bytes;
    return unmapped;
  };
  Result<void> result;
  while (first != last) {
    const Run run = run_from(first, last);
    if (Result<void> whole = unmap_extent(run.extent); whole) {
      chunks.erase(first, run.next);
    } else if (std::next(first) == run.next) {  // there is nothing smaller to try
      if (result) result = std::move(whole);
    } else {
      while (first != run.next) {
        if (Result<void> single = unmap_extent(extent_of(*first)); single) {
          first = chunks.erase(first);
        } else {
          if (result) result = std::move(single);
          ++first;
        }
      }
    }
    first = run.next;
  }
  return result;
}

void RangeAddresses::begin_retiring(std::span<const Extent> extents) {
  std::map<std::size_t, std::size_t> begun;
  for (const Extent& each : extents) begun.emplace(each.offset, each.bytes);
  const std::lock_guard lock(mutex_);
  out_of_use_ += begun.size();
  retiring_.merge(begun);
}

void RangeAddresses::end_retiring(std::span<const Extent> extents) noexcept {
  const std::lock_guard lock(mutex_);
  for (const Extent& each : extents) out_of_use_ -= retiring_.erase(each.offset);
}

bool RangeAddresses::is_retiring(const Extent& extent) const {
  if (out_of_use_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(retiring_.begin(), retiring_.end(), [&](const auto& each) {
    return each.first < extent.end() && extent.offset < each.first + each.second;
  });
}

std::size_t RangeAddresses::out_of_use_from(std::size_t offset) const {
  if (out_of_use_ == 0) return SIZE_MAX;
  const std::lock_guard lock(mutex_);
  const auto retiring = retiring_.lower_bound(offset);
  const auto quarantined = quarantined_.lower_bound(offset);
  return std::min(retiring == retiring_.end() ? SIZE_MAX : retiring->first,
                  quarantined == quarantined_.end() ? SIZE_MAX : quarantined->first);
}

void RangeAddresses::quarantine(ChunkMap&& chunks) noexcept {
  for (const auto& each : chunks) never_recycle(each.second);
  const std::lock_guard lock(mutex_);
  out_of_use_ += chunks.size();
  quarantined_.merge(std::move(chunks));
}

std::vector<ChunkInfo> RangeAddresses::quarantined() const {
  const std::lock_guard lock(mutex_);
  std::vector<ChunkInfo> infos;
  infos.reserve(quarantined_.size());
  for (const auto& [offset, memory] : quarantined_)
    infos.push_back({offset, memory.size(), memory.properties().location, true});
  return infos;
}

Result<void> RangeAddresses::clear_quarantine(const Extent& extent) {
  if (out_of_use_ == 0) return {};
  ChunkMap chunks;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = quarantined_.begin(); each != quarantined_.end();) {
      const auto next = std::next(each);
      const Extent own = extent_of(*each);
      if (own.offset < extent.end() && extent.offset < own.end()) {
        chunks.insert(quarantined_.extract(each));
        --out_of_use_;
      }
      each = next;
    }
  }
  if (chunks.empty()) return {};
  try {
    Result<void> unmapped = unmap(chunks);
    quarantine(std::move(chunks));
    return unmapped;
  } catch (...) {
    quarantine(std::move(chunks));
    throw;
  }
}

void RangeAddresses::never_recycle(const SharedPhysicalMemory& memory) noexcept {
  memory.memory().state_->recyclable.store(false);
}

void RangeAddresses::free() {
  while (!reservations_.empty()) {
    const std::size_t bytes = reservations_.back().size();
    reservations_.back().free();
    const std::lock_guard lock(mutex_);
    reservations_.pop_back();
    size_ -= bytes;  // at once: should the next not be freed, these are anybody's
  }
}

namespace {

std::vector<Extent> extents_of(const ChunkMap& chunks) {
  std::vector<Extent> extents;
  for (const auto& each : chunks) {
    if (extents.empty() || extents.back().end() != each.first) {
      extents.push_back(extent_of(each));
    } else {
      extents.back().bytes += each.second.size();
    }
  }
  return extents;
}

}  // namespace

RetiredChunks::RetiredChunks(std::shared_ptr<RangeAddresses> addresses, ChunkMap& chunks)
    : extents_(extents_of(chunks)) {
  addresses->begin_retiring(extents_);
  addresses_ = std::move(addresses);
  chunks_ = std::move(chunks);
}

ChunkMap RetiredChunks::take_back() noexcept {
  if (addresses_) addresses_->end_retiring(extents_);
  addresses_.reset();
  return std::move(chunks_);
}

RetiredChunks::~RetiredChunks() {
  if (!addresses_) return;
  try {
    if (const Result<void> unmapped = addresses_->unmap(chunks_); !unmapped) report_cleanup_failure(unmapped.failure());
  } catch (const std::exception&) {
    report_cleanup_failure(Failure{});  // no memory left to say what failed
  }
  addresses_->quarantine(std::move(chunks_));
  addresses_->end_retiring(extents_);
}

}  // namespace cuvmm::range
