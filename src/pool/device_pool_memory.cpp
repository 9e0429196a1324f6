// Physical memory of a pool that is free, and making more.
#include <fmt/format.h>

#include <algorithm>

#include "pool/device_pool.hpp"
#include "refusal.hpp"

namespace cuvmm::pool {

namespace {

// Of an allocation that is made of more chunks than this, the smallest are released and made anew as one: mapping costs
// by the chunk, now and whenever these are moved again.
constexpr std::size_t many_pieces = 4;
constexpr std::size_t small_piece = std::size_t{32} << 20;

}  // namespace

// Of one size, what is mapped nowhere comes first.
std::vector<DevicePool::Candidate> DevicePool::candidates() const {
  std::vector<Candidate> found;
  for (const auto& each : loose_) found.push_back({each.first, Where::loose, 0});
  for (const Place& each : packed_.free_chunks()) found.push_back({each.bytes, Where::packed, each.offset});
  for (const Place& each : spans_.free_chunks()) found.push_back({each.bytes, Where::spans, each.offset});
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
  return found;
}

// The smallest that is enough by itself, or the largest of all. They are in order, the largest first, and not none.
DevicePool::Candidate DevicePool::take_for(std::size_t bytes, std::vector<Candidate>& candidates) {
  const auto enough =
      std::find_if(candidates.rbegin(), candidates.rend(), [&](const Candidate& each) { return each.bytes >= bytes; });
  const auto chosen = enough == candidates.rend() ? candidates.begin() : std::prev(enough.base());
  const Candidate taken = *chosen;
  candidates.erase(chosen);
  return taken;
}

std::size_t DevicePool::idle_bytes() const {
  std::size_t bytes = 0;
  for (const Candidate& each : candidates()) bytes += each.bytes;
  return bytes;
}

DevicePool::Taken DevicePool::take_out(const Candidate& candidate) {
  if (candidate.where == Where::loose) {
    auto node = loose_.extract(loose_.find(candidate.bytes));
    return {std::move(node.mapped()), std::nullopt, Where::loose, 0};
  }
  Chunk chunk =
      candidate.where == Where::packed ? packed_.take_chunk(candidate.offset) : spans_.take_chunk(candidate.offset);
  SharedPhysicalMemory memory = chunk.memory;
  return {std::move(memory), std::move(chunk), candidate.where, candidate.offset};
}

// From the largest that fits down to the smallest; then what is missing is made, as long as the pool does not become
// larger by that than it ever was. Else larger chunks are given up for it: they cannot be divided.
DevicePool::Plan DevicePool::plan(std::size_t bytes, std::size_t largest, bool sparing) {
  const Lock lock(mutex_);
  const std::vector<Candidate> all = candidates();
  std::vector<Candidate> used, others;
  std::size_t missing = bytes;
  for (const Candidate& each : all) {
    if (each.bytes <= missing && each.bytes <= largest) {
      used.push_back(each);
      missing -= each.bytes;
    } else {
      others.push_back(each);
    }
  }
  Plan plan;
  plan.created = missing;
  std::size_t released = 0;
  if (sparing || numbers_.reserved_bytes + missing > numbers_.peak_reserved_bytes) {
    while (released < missing && !others.empty()) {
      const Candidate victim = take_for(missing - released, others);
      released += victim.bytes;
      plan.released.push_back(take_out(victim));
    }
  }
  while (largest == SIZE_MAX && used.size() > many_pieces && used.back().bytes < small_piece) {
    plan.created += used.back().bytes;
    plan.released.push_back(take_out(used.back()));
    used.pop_back();
  }
  for (const Candidate& each : used) plan.reused.push_back(take_out(each));
  return plan;
}

// Memory of so many bytes, mapped nowhere, or a failure, after which all that was free is free.
Result<std::vector<SharedPhysicalMemory>> DevicePool::gather(std::size_t bytes, std::size_t largest, bool sparing) {
  std::vector<SharedPhysicalMemory> pieces;
  auto missing = recycle(bytes, largest, sparing, pieces);
  if (missing && *missing != 0) missing = borrow(*missing, largest, sparing, pieces);
  Result<void> done;
  if (!missing) {
    done = missing.failure();
  } else if (*missing != 0) {
    done = create(*missing, largest, pieces);
  }
  if (done) return pieces;
  keep_loose(pieces);
  return done.failure();
}

// Adds what is free and fits, mapped nowhere. Answers how many bytes are still missing, for which room was made.
Result<std::size_t> DevicePool::recycle(std::size_t bytes, std::size_t largest, bool sparing,
                                        std::vector<SharedPhysicalMemory>& pieces) {
  Plan planned = plan(bytes, largest, sparing);
  Result<void> done = unmap(planned.reused);
  if (done) done = unmap(planned.released);
  const std::size_t count = planned.reused.size();
  for (Taken& each : planned.reused) pieces.push_back(std::move(each.memory));
  if (!done) {
    put_back(planned.released);
    return done.failure();
  }
  {
    const Lock lock(mutex_);
    numbers_.remapped += count;
  }
  release(planned.released);
  return planned.created;
}

// Unmaps those that are mapped. One that the driver does not unmap goes back to its place; it and those behind it are
// no longer in `taken`.
Result<void> DevicePool::unmap(std::vector<Taken>& taken) {
  Result<void> result;
  std::size_t moved = 0;
  std::vector<Taken*> stuck, gone;
  for (Taken& each : taken) {
    if (!each.chunk) continue;
    if (!result) {
      stuck.push_back(&each);
      continue;
    }
    try {
      each.chunk->mapping.unmap();
      gone.push_back(&each);
      ++moved;
    } catch (const Error& error) {
      result = error.failure();
      stuck.push_back(&each);
    }
  }
  const Lock lock(mutex_);
  numbers_.calls.unmap += moved;
  numbers_.mappings -= moved;
  for (Taken* each : gone) {
    const Place place{each->offset, each->memory.size()};
    each->where == Where::packed ? packed_.vacate(place) : spans_.vacate(place);
    each->chunk.reset();
  }
  for (Taken* each : stuck)
    each->where == Where::packed ? packed_.put_back(each->offset, std::move(*each->chunk))
                                 : spans_.put_back(each->offset, std::move(*each->chunk));
  std::erase_if(taken, [&](const Taken& each) { return std::find(stuck.begin(), stuck.end(), &each) != stuck.end(); });
  return result;
}

// As they were, those that are mapped no more but for their addresses.
void DevicePool::put_back(std::vector<Taken>& taken) {
  const Lock lock(mutex_);
  for (Taken& each : taken) {
    const std::size_t bytes = each.memory.size();
    if (!each.chunk) {
      loose_.emplace(bytes, std::move(each.memory));
    } else if (each.where == Where::packed) {
      packed_.put_back(each.offset, std::move(*each.chunk));
    } else {
      spans_.put_back(each.offset, std::move(*each.chunk));
    }
  }
  taken.clear();
}

// The budget comes last: what is counted never is more than what is charged.
void DevicePool::release(std::vector<Taken>& taken) {
  std::size_t bytes = 0;
  for (const Taken& each : taken) bytes += each.memory.size();
  const std::size_t count = taken.size();
  taken.clear();  // the driver is called here
  {
    const Lock lock(mutex_);
    numbers_.calls.release += count;
    numbers_.reserved_bytes -= bytes;
  }
  budget_->discharge(bytes);
}

Result<void> DevicePool::create(std::size_t bytes, std::size_t largest, std::vector<SharedPhysicalMemory>& pieces) {
  while (bytes != 0) {
    const std::size_t size = std::min(bytes, largest);
    if (!budget_->charge(size)) {
      Failure failure;
      failure.kind = ErrorKind::out_of_device_memory;
      failure.rule = "The budget of the pool is used up";
      return failure;
    }
    auto memory = setting_.source->try_acquire(properties_, size);
    if (!memory) {
      budget_->discharge(size);
      return memory.failure();
    }
    pieces.push_back(std::move(memory).value());
    bytes -= size;
    const Lock lock(mutex_);
    ++numbers_.calls.create;
    numbers_.reserved_bytes += size;
    numbers_.peak_reserved_bytes = std::max(numbers_.peak_reserved_bytes, numbers_.reserved_bytes);
  }
  return {};
}

void DevicePool::keep_loose(std::vector<SharedPhysicalMemory>& pieces) {
  const Lock lock(mutex_);
  for (SharedPhysicalMemory& each : pieces) {
    const std::size_t bytes = each.size();
    loose_.emplace(bytes, std::move(each));
  }
  if (!pieces.empty()) ++progress_;
  pieces.clear();
}

// Unmaps all that is free in spans, for their addresses.
void DevicePool::loosen() {
  std::vector<Taken> taken;
  {
    const Lock lock(mutex_);
    for (const Place& each : spans_.free_chunks()) taken.push_back(take_out({each.bytes, Where::spans, each.offset}));
  }
  if (const Result<void> unmapped = unmap(taken); !unmapped) report_cleanup_failure(unmapped.failure());
  std::vector<SharedPhysicalMemory> pieces;
  pieces.reserve(taken.size());
  for (Taken& each : taken) pieces.push_back(std::move(each.memory));
  keep_loose(pieces);
}

// No more than is asked for, but for the rest of a chunk.
std::size_t DevicePool::trim(std::size_t keep_bytes, std::size_t step_bytes) {
  poll();
  std::vector<Taken> taken;
  std::size_t bytes = 0;
  {
    const Lock lock(mutex_);
    const std::size_t excess = numbers_.reserved_bytes > keep_bytes ? numbers_.reserved_bytes - keep_bytes : 0;
    const std::size_t wanted = std::min(excess, step_bytes);
    std::vector<Candidate> all = candidates();
    while (bytes < wanted && !all.empty()) {
      const Candidate each = take_for(wanted - bytes, all);
      bytes += each.bytes;
      taken.push_back(take_out(each));
    }
    in_flight_ += taken.empty() ? 0 : 1;
  }
  if (taken.empty()) return 0;
  if (const Result<void> unmapped = unmap(taken); !unmapped) report_cleanup_failure(unmapped.failure());
  bytes = 0;
  for (const Taken& each : taken) bytes += each.memory.size();
  release(taken);
  const Lock lock(mutex_);
  --in_flight_;
  return bytes;
}

}  // namespace cuvmm::pool
