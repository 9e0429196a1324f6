#include <array>
#include <chrono>

#include "driver/call.hpp"
#include "library_world.hpp"

namespace cuvmm::test {
namespace {

using driver::call;
using driver::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));
const MemoryProperties on_device0{.location = device0};
const MemoryProperties on_host{.location = Location::host()};

// For the device, which here works in the calling thread: what is not done then is not done.
constexpr std::chrono::milliseconds short_wait{20};

MappedRangeOptions two_megabyte_pages(const LibraryWorld& world) {
  MappedRangeOptions options;
  options.capacity = 64_MiB;
  options.memory = on_device0;
  options.chunks = ChunkPolicy::fixed(2_MiB);
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  options.source = world.source;
  options.retire_queue = world.queue;
  options.device_wait = short_wait;
  return options;
}

void make_source_that_recycles(LibraryWorld& world, std::size_t limit) {
  PhysicalSourceOptions options;
  options.budgets = {{device0, 256_MiB}};
  options.recycle_limit = limit;
  options.pressure_wait = short_wait;
  world.source = PhysicalSource::create(world.driver(), options);
}

void make_source(LibraryWorld& world) {
  make_source_that_recycles(world, 0);
}

// It has an allocation that waits for re-use.
void make_source_with_memory(LibraryWorld& world) {
  make_source_that_recycles(world, 16_MiB);
  (void)world.source->acquire(on_device0, 2_MiB);
}

void make_queue(LibraryWorld& world) {
  world.queue = RetireQueue::create(world.driver(), {.full_wait = short_wait, .drain_wait = short_wait});
}

void make_mapping(LibraryWorld& world) {
  world.reservation = AddressReservation::create(world.driver(), 8_MiB);
  world.memory = PhysicalMemory::create(world.driver(), on_device0, 2_MiB);
  world.mapping = Mapping::create(*world.reservation, 0, *world.memory);
}

void make_granted_mapping(LibraryWorld& world) {
  make_mapping(world);
  grant(*world.mapping, device0, AccessRights::read_write);
}

// Memory of the host that the host may touch: mapping and unmapping it are system calls.
void make_host_mapping(LibraryWorld& world) {
  world.reservation = AddressReservation::create(world.driver(), 8_MiB);
  world.memory = PhysicalMemory::create(world.driver(), on_host, 2_MiB);
  world.mapping = Mapping::create(*world.reservation, 0, *world.memory);
}

// Three pages and a hole between the second and the third.
void make_range(LibraryWorld& world) {
  make_source(world);
  world.range = MappedRange::create(world.driver(), two_megabyte_pages(world));
  world.range->append(4_MiB);
  world.range->map(8_MiB, 2_MiB);
}

void make_host_range(LibraryWorld& world) {
  MappedRangeOptions options = two_megabyte_pages(world);
  options.memory = on_host;
  options.grants = {{Location::host(), AccessRights::read_write}, {device0, AccessRights::read_write}};
  world.range = MappedRange::create(world.driver(), options);
  world.range->append(4_MiB);
}

void make_used_range(LibraryWorld& world) {
  make_range(world);
  world.use_range();
}

void make_used_range_with_queue(LibraryWorld& world) {
  make_queue(world);
  make_range(world);
  world.use_range();
}

void make_two_ranges(LibraryWorld& world) {
  make_range(world);
  world.second_range = MappedRange::create(world.driver(), two_megabyte_pages(world));
  world.second_range->append(2_MiB);
}

void make_stream(LibraryWorld& world) {
  call<EntryPoint::cuStreamCreate>(world.driver().interface(), &world.stream, 1U);
}

void make_uses(LibraryWorld& world) {
  make_stream(world);
  call<EntryPoint::cuEventCreate>(world.driver().interface(), &world.event, 0U);
  call<EntryPoint::cuEventRecord>(world.driver().interface(), world.event, world.stream);
  world.uses.emplace(world.driver());
}

void make_pending_uses(LibraryWorld& world) {
  make_granted_mapping(world);
  make_uses(world);
  world.uses->used_on(world.stream);
  call<EntryPoint::cuMemsetD8Async>(world.driver().interface(), world.mapping->address().value,
                                    static_cast<unsigned char>(1), 4096U, world.stream);
}

void make_retired(LibraryWorld& world) {
  make_queue(world);
  make_pending_uses(world);
  world.queue->retire(std::move(*world.mapping), world.uses->so_far(), 2_MiB);
  world.mapping.reset();
}

std::vector<LibraryOperation> owner_operations() {
  return {
      {"Driver::devices", {}, [](LibraryWorld& w) { (void)w.driver().devices(); }},
      {"Driver::emulated",
       {},
       [](LibraryWorld& w) {
         emulator::Configuration configuration = w.emulated().machine().configuration();
         (void)Driver::emulated(configuration);
       }},
      {"CurrentContext", {}, [](LibraryWorld& w) { const CurrentContext again(w.driver().device(DeviceOrdinal(1))); }},
      {"PhysicalMemory::create",
       {},
       [](LibraryWorld& w) { w.memory = PhysicalMemory::create(w.driver(), on_device0, 2_MiB); }},
      {"PhysicalMemory::create of the host",
       {},
       [](LibraryWorld& w) { w.memory = PhysicalMemory::create(w.driver(), on_host, 2_MiB); }},
      {"PhysicalMemory::retain", make_mapping,
       [](LibraryWorld& w) { (void)PhysicalMemory::retain(w.driver(), w.mapping->address()); }},
      {"PhysicalMemory::release",
       [](LibraryWorld& w) { w.memory = PhysicalMemory::create(w.driver(), on_device0, 2_MiB); },
       [](LibraryWorld& w) { w.memory->release(); }},
      {"AddressReservation::create",
       {},
       [](LibraryWorld& w) { w.reservation = AddressReservation::create(w.driver(), 8_MiB, 4_MiB); }},
      {"AddressReservation::free",
       [](LibraryWorld& w) { w.reservation = AddressReservation::create(w.driver(), 8_MiB); },
       [](LibraryWorld& w) { w.reservation->free(); }},
      {"Mapping::create", make_mapping,
       [](LibraryWorld& w) { (void)Mapping::create(*w.reservation, 2_MiB, *w.memory); }},
      {"Mapping::unmap", make_granted_mapping, [](LibraryWorld& w) { w.mapping->unmap(); }},
      {"Mapping::unmap of the host's memory",
       [](LibraryWorld& w) {
         make_host_mapping(w);
         grant(*w.mapping, Location::host(), AccessRights::read_write);
       },
       [](LibraryWorld& w) { w.mapping->unmap(); }},
      {"grant", make_mapping,
       [](LibraryWorld& w) {
         const std::array grants{AccessGrant{device0, AccessRights::read_write},
                                 AccessGrant{device1, AccessRights::read}};
         grant(*w.mapping, grants);
       }},
      {"grant to the host", make_host_mapping,
       [](LibraryWorld& w) { grant(*w.mapping, Location::host(), AccessRights::read_write); }},
      {"revoke", make_granted_mapping, [](LibraryWorld& w) { revoke(*w.mapping, device0); }},
      {"access", make_granted_mapping, [](LibraryWorld& w) { (void)access(*w.mapping, device0); }},
      {"copy to the device", make_granted_mapping,
       [](LibraryWorld& w) { copy_to_device(*w.mapping, 64, std::array<int, 16>{}); }},
      {"copy from the device", make_granted_mapping,
       [](LibraryWorld& w) {
         std::array<int, 16> values{};
         copy_from_device(values, *w.mapping, 64);
       }},
      {"dma_bufs", make_granted_mapping,
       [](LibraryWorld& w) { w.dma_bufs = dma_bufs(w.driver(), w.mapping->address() + 512, 4096); }},
      {"describe", make_granted_mapping,
       [](LibraryWorld& w) { w.info = describe(w.driver(), w.mapping->address() + 5); }},
      {"Capabilities::of",
       {},
       [](LibraryWorld& w) { w.capabilities = Capabilities::of(w.driver().device(DeviceOrdinal(0))); }},
  };
}

std::vector<LibraryOperation> source_operations() {
  return {
      {"PhysicalSource::create", {}, make_source},
      {"PhysicalSource::acquire", make_source,
       [](LibraryWorld& w) { w.shared = w.source->acquire(on_device0, 2_MiB); }},
      {"PhysicalSource::acquire of what waits", make_source_with_memory,
       [](LibraryWorld& w) { w.shared = w.source->acquire(on_device0, 2_MiB); }},
      {"PhysicalSource::try_acquire_all", make_source,
       [](LibraryWorld& w) {
         const std::size_t sizes[] = {2_MiB, 4_MiB, 2_MiB};
         w.many = w.source->try_acquire_all(on_device0, sizes).value();
       }},
      {"giving memory back to its source",
       [](LibraryWorld& w) {
         make_source_that_recycles(w, 16_MiB);
         w.shared = w.source->acquire(on_device0, 2_MiB);
       },
       [](LibraryWorld& w) { w.shared = {}; }, Unfinished::part_of_the_way},
      {"PhysicalSource::trim", make_source_with_memory, [](LibraryWorld& w) { (void)w.source->trim(); },
       Unfinished::part_of_the_way},
      {"PhysicalSource::add_reclaim_hook", make_source,
       [](LibraryWorld& w) { (void)w.source->add_reclaim_hook([](const ReclaimRequest&) { return std::size_t{0}; }); }},
  };
}

std::vector<LibraryOperation> use_operations() {
  return {
      {"RetireQueue::create", {}, make_queue},
      {"StreamUses::used_on", make_uses, [](LibraryWorld& w) { w.uses->used_on(w.stream); }},
      {"StreamUses::used_until", make_uses, [](LibraryWorld& w) { w.uses->used_until(w.event); }},
      {"StreamUses::no_longer_used_on", make_pending_uses, [](LibraryWorld& w) { w.uses->no_longer_used_on(w.stream); },
       Unfinished::part_of_the_way},
      {"StreamUses::so_far", make_pending_uses, [](LibraryWorld& w) { w.work = w.uses->so_far(); }},
      {"PendingWork::is_done",
       [](LibraryWorld& w) {
         make_pending_uses(w);
         w.work = w.uses->so_far();
       },
       [](LibraryWorld& w) { (void)w.work->is_done(); }, Unfinished::part_of_the_way},
      {"RetireQueue::retire",
       [](LibraryWorld& w) {
         make_queue(w);
         make_pending_uses(w);
       },
       [](LibraryWorld& w) {
         // What fails leaves the owner with the caller, and the work is asked for anew.
         w.queue->retire(std::move(*w.mapping), w.uses->so_far(), 2_MiB);
       }},
      {"RetireQueue::poll", make_retired, [](LibraryWorld& w) { (void)w.queue->poll(); }, Unfinished::part_of_the_way},
      {"RetireQueue::drain_for", make_retired, [](LibraryWorld& w) { w.queue->drain_for(short_wait).value(); },
       Unfinished::part_of_the_way},
  };
}

std::vector<LibraryOperation> range_operations() {
  return {
      {"MappedRange::create", make_source,
       [](LibraryWorld& w) { w.range = MappedRange::create(w.driver(), two_megabyte_pages(w)); }},
      {"MappedRange::append", make_range, [](LibraryWorld& w) { w.range->append(6_MiB); }},
      {"MappedRange::append to what the last chunk has left",
       [](LibraryWorld& w) {
         make_range(w);
         w.range->append(1_MiB);
       },
       [](LibraryWorld& w) { w.range->append(5_MiB); }},
      {"MappedRange::append of the host's memory", make_host_range, [](LibraryWorld& w) { w.range->append(6_MiB); }},
      {"MappedRange::append beyond the capacity", make_range, [](LibraryWorld& w) { w.range->append(64_MiB); }},
      {"MappedRange::append of existing memory",
       [](LibraryWorld& w) {
         make_range(w);
         w.shared = w.source->acquire(on_device0, 4_MiB);
       },
       [](LibraryWorld& w) { w.range->append(w.shared); }},
      {"MappedRange::map into the hole", make_range, [](LibraryWorld& w) { w.range->map(4_MiB, 4_MiB); }},
      {"append_all", make_two_ranges,
       [](LibraryWorld& w) {
         append_all({{&*w.range, 6_MiB}, {&*w.second_range, 6_MiB}});
       }},
      {"MappedRange::replace",
       [](LibraryWorld& w) {
         make_used_range(w);
         w.shared = w.source->acquire(on_device0, 2_MiB);
       },
       [](LibraryWorld& w) { (void)w.range->replace(2_MiB, w.shared); }, Unfinished::as_before_if_undone},
      {"MappedRange::unmap", make_used_range, [](LibraryWorld& w) { w.range->unmap(2_MiB, 2_MiB); }},
      {"MappedRange::unmap through a queue", make_used_range_with_queue,
       [](LibraryWorld& w) { w.range->unmap(2_MiB, 2_MiB); }},
      {"MappedRange::unmap of the host's memory", make_host_range, [](LibraryWorld& w) { w.range->unmap(0, 4_MiB); }},
      {"MappedRange::truncate", make_used_range, [](LibraryWorld& w) { w.range->truncate(1_MiB); },
       Unfinished::part_of_the_way},
      {"MappedRange::truncate through a queue", make_used_range_with_queue,
       [](LibraryWorld& w) { w.range->truncate(1_MiB); }, Unfinished::part_of_the_way},
      {"MappedRange::close", make_used_range, [](LibraryWorld& w) { w.range->close(); }, Unfinished::part_of_the_way},
      {"MappedRange::close through a queue", make_used_range_with_queue, [](LibraryWorld& w) { w.range->close(); },
       Unfinished::part_of_the_way},
      {"MappedRange::grant", make_range, [](LibraryWorld& w) { w.range->grant(device1, AccessRights::read_write); }},
      {"MappedRange::grant to the host", make_host_range,
       [](LibraryWorld& w) { w.range->grant(device1, AccessRights::read_write); }},
      {"MappedRange::revoke", make_used_range, [](LibraryWorld& w) { w.range->revoke(device1); }},
      {"MappedRange::grant_where_reachable", make_range,
       [](LibraryWorld& w) {
         const std::array devices{DeviceOrdinal(0), DeviceOrdinal(1)};
         (void)w.range->grant_where_reachable(devices);
       }},
      {"MappedRange::used_on",
       [](LibraryWorld& w) {
         make_range(w);
         make_stream(w);
       },
       [](LibraryWorld& w) { w.range->used_on(w.stream); }},
      {"MappedRange::observe", make_range,
       [](LibraryWorld& w) { (void)w.range->observe({.before_unmap = [](std::size_t, std::size_t) {}}); }},
      {"MappedRange::chunks", make_range, [](LibraryWorld& w) { (void)w.range->chunks(); }},
  };
}

}  // namespace

std::vector<LibraryOperation> library_operations() {
  std::vector<LibraryOperation> all;
  for (auto&& group :
       {owner_operations(), source_operations(), use_operations(), range_operations(), shape_operations()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace cuvmm::test
