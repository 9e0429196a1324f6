#include <chrono>

#include "driver/call.hpp"
#include "library_world.hpp"

namespace cuvmm::test {
namespace {

using driver::call;
using driver::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

// For the device, which here works in the calling thread: what is not done then is not done.
constexpr std::chrono::milliseconds short_wait{20};

MappedRangeOptions small_pages(const LibraryWorld& world) {
  MappedRangeOptions options;
  options.capacity = 8_MiB;
  options.chunks = ChunkPolicy::fixed(2_MiB);
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  options.retire_queue = world.queue;
  options.device_wait = short_wait;
  return options;
}

void make_buffer(LibraryWorld& world) {
  world.buffer = DeviceBuffer::create(world.driver(), small_pages(world));
  world.buffer->resize(4_MiB);
}

// All its addresses are used, and those behind them are taken.
void make_full_buffer(LibraryWorld& world) {
  make_buffer(world);
  world.buffer->resize(8_MiB);
  world.reservation = AddressReservation::create(world.driver(), 2_MiB, 0, world.buffer->address() + 8_MiB);
}

void make_used_full_buffer_with_queue(LibraryWorld& world) {
  world.queue = RetireQueue::create(world.driver(), {.full_wait = short_wait, .drain_wait = short_wait});
  make_full_buffer(world);
  call<EntryPoint::cuStreamCreate>(world.driver().interface(), &world.stream, 1U);
  world.buffer->used_on(world.stream);
  call<EntryPoint::cuMemsetD8Async>(world.driver().interface(), world.buffer->address().value,
                                    static_cast<unsigned char>(1), 4096U, world.stream);
}

void make_moved_buffer(LibraryWorld& world) {
  make_full_buffer(world);
  world.buffer->resize(10_MiB);
}

void make_ring(LibraryWorld& world) {
  world.ring = RingBuffer::create(world.driver(), {.bytes = 2_MiB, .device_wait = short_wait});
}

void make_filled_ring(LibraryWorld& world) {
  make_ring(world);
  world.ring->commit(2_MiB - 64);
  world.ring->release(2_MiB - 64);
  world.ring->write(std::vector<std::byte>(128));
}

void make_stitched(LibraryWorld& world) {
  world.stitched = StitchedMemory::create(
      world.driver(), 7_MiB,
      {.locations = {device0, device1, Location::host_numa(0)}, .layout = StitchedLayout::cyclic(2_MiB)});
}

}  // namespace

std::vector<LibraryOperation> shape_operations() {
  return {
      {"DeviceBuffer::create",
       {},
       [](LibraryWorld& w) { w.buffer = DeviceBuffer::create(w.driver(), small_pages(w)); }},
      {"DeviceBuffer::reserve", make_buffer, [](LibraryWorld& w) { w.buffer->reserve(8_MiB); }},
      {"DeviceBuffer::reserve by moving", make_full_buffer, [](LibraryWorld& w) { w.buffer->reserve(12_MiB); }},
      {"DeviceBuffer::reserve by moving, through a queue", make_used_full_buffer_with_queue,
       [](LibraryWorld& w) { w.buffer->reserve(12_MiB); }},
      // A copy that fails leaves the capacity that it got.
      {"DeviceBuffer::append", make_buffer, [](LibraryWorld& w) { w.buffer->append(std::vector<std::byte>(4096)); },
       Unfinished::part_of_the_way},
      {"DeviceBuffer::shrink_to_fit", make_moved_buffer,
       [](LibraryWorld& w) {
         w.buffer->clear();
         w.buffer->shrink_to_fit();
       },
       Unfinished::part_of_the_way},
      {"DeviceBuffer::release_former", make_moved_buffer, [](LibraryWorld& w) { w.buffer->release_former(); },
       Unfinished::part_of_the_way},
      {"DeviceBuffer::close", make_moved_buffer, [](LibraryWorld& w) { w.buffer->close(); },
       Unfinished::part_of_the_way},
      {"DeviceBuffer::grant", make_moved_buffer,
       [](LibraryWorld& w) { w.buffer->grant(device1, AccessRights::read_write); }},
      {"RingBuffer::create", {}, make_ring},
      {"RingBuffer::write", make_filled_ring, [](LibraryWorld& w) { w.ring->write(std::vector<std::byte>(4096)); }},
      {"RingBuffer::read", make_filled_ring,
       [](LibraryWorld& w) {
         std::vector<std::byte> bytes(100);
         w.ring->read(bytes);
       }},
      {"StitchedMemory::create", {}, make_stitched},
  };
}

}  // namespace cuvmm::test
