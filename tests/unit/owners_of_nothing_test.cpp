// What owners and shapes answer once they own nothing: numbers are 0, lists are empty, and all else is refused in
// words. Each is asked the same before, when it is answered.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuvmm/sharing/sharing.hpp"
#include "sharing/shared_range_fixture.hpp"

namespace cuvmm {
namespace {

using namespace test;
using sharing::test::soon;

template <class Owner>
struct Asked {
  std::string call;  // that the refusal names
  std::function<void(Owner&)> ask;
};

// Of the living owner each is answered, in this order; of the one that owns nothing each is refused.
template <class Owner>
void expect_answered_and_refused(Owner& living, Owner& nothing, const std::vector<Asked<Owner>>& table) {
  for (const Asked<Owner>& each : table) {
    EXPECT_NO_THROW(each.ask(living)) << each.call;
    try {
      each.ask(nothing);
      ADD_FAILURE() << each.call << " was answered";
    } catch (const InvalidUse& error) {
      const Failure& failure = error.failure();
      EXPECT_EQ(failure.call, each.call) << failure.message();
      EXPECT_EQ(failure.rule.find("It owns nothing"), 0U) << failure.message();
      EXPECT_FALSE(failure.arguments.empty() || failure.way_out.empty()) << failure.message();
    }
  }
}

class OwnersOfNothing : public sharing::test::SharedRange {
 protected:
  [[nodiscard]] const Driver& driver() const { return machine_.driver(); }
  [[nodiscard]] PhysicalMemory memory() const {
    return PhysicalMemory::create(driver(), {.handle_types = HandleType::posix_file_descriptor}, 2_MiB);
  }
  [[nodiscard]] static MappedRangeOptions small() {
    MappedRangeOptions options;
    options.capacity = 64_MiB;
    options.chunks = ChunkPolicy::fixed(2_MiB);
    return options;
  }
  [[nodiscard]] MappedRange range() const {
    auto made = MappedRange::create(driver(), small());
    made.append(4_MiB);
    return made;
  }
  const Location device_ = Location::device(DeviceOrdinal(0));
  const Location other_ = Location::device(DeviceOrdinal(1));
  std::vector<std::byte> bytes_ = std::vector<std::byte>(16);
};

TEST_F(OwnersOfNothing, PhysicalMemory) {
  auto living = memory();
  EXPECT_EQ(living.size(), 2_MiB);
  EXPECT_NE(living.handle(), 0U);
  auto nothing = memory();
  const auto moved = std::move(nothing);
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_EQ(nothing.handle(), 0U);
  auto reservation = AddressReservation::create(driver(), 2_MiB);
  expect_answered_and_refused<PhysicalMemory>(
      living, nothing,
      {{"PhysicalMemory::properties", [](auto& one) { static_cast<void>(one.properties()); }},
       {"PhysicalMemory::driver", [](auto& one) { static_cast<void>(one.driver()); }},
       {"Mapping::create", [&](auto& one) { static_cast<void>(Mapping::create(reservation, 0, one)); }},
       {"ShareableHandle::export_from",
        [](auto& one) {
          static_cast<void>(sharing::ShareableHandle::export_from(one, HandleType::posix_file_descriptor));
        }},
       {"export_for",
        [](auto& one) {
          const auto ends = sharing::DescriptorSocket::pair();
          static_cast<void>(sharing::export_for(ends.first, one));
        }},
       {"PhysicalMemory::release", [](auto& one) { one.release(); }}});
  living = memory();
  expect_answered_and_refused<PhysicalMemory>(
      living, nothing, {{"PhysicalMemory::give_out", [&](auto& one) {
                           static_cast<void>(PhysicalMemory::adopt(driver(), one.give_out(), 2_MiB));
                         }}});
}

TEST_F(OwnersOfNothing, ShareOfMovedFromMemoryIsEmpty) {
  auto one = memory();
  const SharedPhysicalMemory share(std::move(one));
  EXPECT_TRUE(share);
  const SharedPhysicalMemory nothing(std::move(one));  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(nothing);
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_THROW(static_cast<void>(nothing.properties()), InvalidUse);
  auto target = range();
  EXPECT_FALSE(target.try_append(nothing));
  EXPECT_TRUE(target.try_append(share));
}

TEST_F(OwnersOfNothing, AddressReservation) {
  auto living = AddressReservation::create(driver(), 2_MiB);
  EXPECT_EQ(living.size(), 2_MiB);
  EXPECT_NE(living.address(), DeviceAddress());
  auto nothing = AddressReservation::create(driver(), 2_MiB);
  nothing.free();
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_EQ(nothing.address(), DeviceAddress());
  const auto one = memory();
  expect_answered_and_refused<AddressReservation>(
      living, nothing,
      {{"AddressReservation::driver", [](auto& each) { static_cast<void>(each.driver()); }},
       {"Mapping::create", [&](auto& each) { static_cast<void>(Mapping::create(each, 0, one)); }},
       {"AddressReservation::free", [](auto& each) { each.free(); }}});
  living = AddressReservation::create(driver(), 2_MiB);
  expect_answered_and_refused<AddressReservation>(
      living, nothing, {{"AddressReservation::give_out", [&](auto& each) {
                           static_cast<void>(AddressReservation::adopt(driver(), each.give_out(), 2_MiB));
                         }}});
}

TEST_F(OwnersOfNothing, Mapping) {
  const auto reservation = AddressReservation::create(driver(), 4_MiB);
  const auto one = memory();
  auto living = Mapping::create(reservation, 0, one);
  auto nothing = Mapping::create(reservation, 2_MiB, one);
  EXPECT_EQ(nothing.size(), 2_MiB);
  auto moved = std::move(nothing);
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_EQ(nothing.address(), DeviceAddress());
  EXPECT_EQ(moved.address(), reservation.address() + 2_MiB);
  nothing = std::move(moved);
  EXPECT_EQ(moved.size(), 0U);
  EXPECT_EQ(moved.address(), DeviceAddress());
  EXPECT_EQ(nothing.address(), reservation.address() + 2_MiB);
  nothing.unmap();
  EXPECT_EQ(nothing.size(), 0U);
  EXPECT_EQ(nothing.address(), DeviceAddress());
  expect_answered_and_refused<Mapping>(
      living, nothing,
      {{"Mapping::location", [](auto& each) { static_cast<void>(each.location()); }},
       {"Mapping::driver", [](auto& each) { static_cast<void>(each.driver()); }},
       {"cuvmm::grant", [&](auto& each) { grant(each, device_, AccessRights::read_write); }},
       {"cuvmm::grant", [&](auto& each) { revoke(each, other_); }},
       {"cuvmm::access", [&](auto& each) { static_cast<void>(access(each, device_)); }},
       {"Mapping::unmap", [](auto& each) { each.unmap(); }}});
  EXPECT_THROW(copy_bytes_to_device(nothing, 0, bytes_), InvalidUse);
  EXPECT_THROW(copy_bytes_from_device(bytes_, nothing, 0), InvalidUse);
}

void expect_no_numbers(const MappedRange& range) {
  EXPECT_EQ(range.address(), DeviceAddress());
  EXPECT_EQ(range.size() + range.mapped_bytes() + range.capacity() + range.granularity() + range.generation(), 0U);
  EXPECT_TRUE(range.grants().empty() && range.chunks().empty() && range.quarantined().empty() && range.pins().empty());
  EXPECT_FALSE(range.memory_at(0));
}

TEST_F(OwnersOfNothing, MappedRange) {
  auto living = range();
  auto closed = range();
  closed.close();
  auto moved_from = range();
  const auto moved = std::move(moved_from);
  const std::vector<Asked<MappedRange>> table{
      {"MappedRange::uses", [](auto& one) { static_cast<void>(one.uses()); }},
      {"MappedRange::used_on", [](auto& one) { one.used_on(nullptr); }},
      {"MappedRange::no_longer_used_on", [](auto& one) { one.no_longer_used_on(nullptr); }},
      {"MappedRange::properties", [](auto& one) { static_cast<void>(one.properties()); }},
      {"MappedRange::driver", [](auto& one) { static_cast<void>(one.driver()); }},
      {"MappedRange::source", [](auto& one) { static_cast<void>(one.source()); }},
      {"MappedRange::pin", [](auto& one) { static_cast<void>(one.pin("for a moment")); }},
      {"MappedRange::observe",
       [](auto& one) { static_cast<void>(one.observe({.after_map = [](std::size_t, std::size_t) {}})); }},
      {"MappedRange::append", [](auto& one) { one.append(2_MiB); }},
      {"MappedRange::append", [&](auto& one) { one.append(2_MiB, other_); }},
      {"MappedRange::append", [&](auto& one) { one.append(SharedPhysicalMemory(memory())); }},
      {"cuvmm::append_all",
       [](auto& one) {
         append_all({{&one, 2_MiB}});
       }},
      {"MappedRange::map", [](auto& one) { one.map(32_MiB, 2_MiB); }},
      {"MappedRange::replace", [&](auto& one) { one.replace(0, SharedPhysicalMemory(memory())); }},
      {"MappedRange::grant", [&](auto& one) { one.grant(other_); }},
      {"MappedRange::revoke", [&](auto& one) { one.revoke(other_); }},
      {"MappedRange::grant_where_reachable",
       [](auto& one) { static_cast<void>(one.grant_where_reachable({DeviceOrdinal(1)})); }},
      {"MappedRange::unmap", [](auto& one) { one.unmap(0, 2_MiB); }},
      {"MappedRange::truncate", [](auto& one) { one.truncate(0); }}};
  expect_no_numbers(closed);
  expect_answered_and_refused(living, closed, table);
  auto again = range();
  expect_no_numbers(moved_from);
  expect_answered_and_refused(again, moved_from, table);
  expect_answered_and_refused<cuvmm::MappedRange>(living, closed,
                                                  {{"MappedRange::close", [](auto& one) { one.close(); }}});
  EXPECT_THROW(copy_bytes_to_device(closed, 0, bytes_), InvalidUse);
  EXPECT_THROW(copy_bytes_from_device(bytes_, closed, 0), InvalidUse);
  EXPECT_THROW(copy_bytes_to_device(closed, 0, {}), InvalidUse);
}

void expect_no_numbers(const DeviceBuffer& buffer) {
  EXPECT_EQ(buffer.address(), DeviceAddress());
  EXPECT_EQ(buffer.size() + buffer.capacity() + buffer.address_capacity() + buffer.generation(), 0U);
  EXPECT_TRUE(buffer.grants().empty() && buffer.former_addresses().empty());
  expect_no_numbers(buffer.range());
}

TEST_F(OwnersOfNothing, DeviceBuffer) {
  const auto buffer = [&] {
    auto made = DeviceBuffer::create(driver(), small());
    made.resize(4_MiB);
    return made;
  };
  auto living = buffer();
  auto closed = buffer();
  closed.close();
  auto moved_from = buffer();
  auto moved = std::move(moved_from);
  EXPECT_EQ(moved.size(), 4_MiB);
  expect_no_numbers(moved_from);
  moved_from = std::move(moved);
  EXPECT_EQ(moved_from.size(), 4_MiB);
  EXPECT_NO_THROW(moved_from.used_on(nullptr));
  expect_no_numbers(moved);
  const std::vector<Asked<DeviceBuffer>> table{
      {"DeviceBuffer::uses", [](auto& one) { static_cast<void>(one.uses()); }},
      {"DeviceBuffer::used_on", [](auto& one) { one.used_on(nullptr); }},
      {"DeviceBuffer::no_longer_used_on", [](auto& one) { one.no_longer_used_on(nullptr); }},
      {"MappedRange::driver", [](auto& one) { static_cast<void>(one.driver()); }},
      {"DeviceBuffer::reserve", [](auto& one) { one.reserve(0); }},
      {"DeviceBuffer::reserve", [](auto& one) { one.resize(6_MiB); }},
      {"DeviceBuffer::reserve", [&](auto& one) { one.append(bytes_); }},
      {"DeviceBuffer::reserve", [&](auto& one) { one.append(bytes_, nullptr); }},
      {"DeviceBuffer::reserve", [&](auto& one) { one.append_from_device(one.address(), 0); }},
      {"DeviceBuffer::reserve", [&](auto& one) { one.append_from_device(one.address(), 0, nullptr); }},
      {"MappedRange::driver", [](auto& one) { one.write(0, {}); }},
      {"DeviceBuffer::used_on", [](auto& one) { one.write(0, {}, nullptr); }},
      {"MappedRange::driver", [](auto& one) { one.read(0, {}); }},
      {"DeviceBuffer::used_on", [](auto& one) { one.read(0, {}, nullptr); }},
      {"MappedRange::grant", [&](auto& one) { one.grant(other_); }},
      {"MappedRange::revoke", [&](auto& one) { one.revoke(other_); }},
      {"MappedRange::grant_where_reachable",
       [](auto& one) { static_cast<void>(one.grant_where_reachable(std::vector{DeviceOrdinal(1)})); }},
      {"MappedRange::truncate", [](auto& one) { one.shrink_to_fit(); }}};
  expect_no_numbers(closed);
  expect_answered_and_refused(living, closed, table);
  expect_answered_and_refused(moved_from, moved, table);
  EXPECT_THROW(closed.write(0, bytes_), InvalidUse);
  EXPECT_THROW(closed.read(0, bytes_), InvalidUse);
  EXPECT_NO_THROW(closed.clear());
  EXPECT_NO_THROW(closed.release_former());
  expect_answered_and_refused<cuvmm::DeviceBuffer>(living, closed,
                                                   {{"DeviceBuffer::close", [](auto& one) { one.close(); }}});
}

TEST_F(OwnersOfNothing, DeviceVector) {
  auto one = DeviceVector<int>::create(driver(), small());
  one.resize(100);
  EXPECT_EQ(one.to_host().size(), 100U);
  const auto moved = std::move(one);
  EXPECT_EQ(one.data(), nullptr);
  EXPECT_TRUE(one.empty());
  EXPECT_EQ(one.capacity() + one.address_capacity(), 0U);
  EXPECT_THROW(static_cast<void>(one.to_host()), InvalidUse);
  EXPECT_THROW(one.resize(1), InvalidUse);
  EXPECT_EQ(moved.to_host().size(), 100U);
}

void expect_no_numbers(const RingBuffer& ring) {
  EXPECT_EQ(ring.address(), DeviceAddress());
  EXPECT_EQ(ring.size() + ring.write_position() + ring.read_position() + ring.readable() + ring.writable(), 0U);
  EXPECT_FALSE(ring.write_window(0));
  EXPECT_FALSE(ring.read_window(0));
  expect_no_numbers(ring.range());
}

TEST_F(OwnersOfNothing, RingBuffer) {
  auto living = RingBuffer::create(driver(), {.bytes = 2_MiB});
  auto closed = RingBuffer::create(driver(), {.bytes = 2_MiB});
  closed.commit(5);
  closed.close();
  auto moved_from = RingBuffer::create(driver(), {.bytes = 2_MiB});
  moved_from.commit(5);
  auto moved = std::move(moved_from);
  EXPECT_EQ(moved.readable(), 5U);
  expect_no_numbers(moved_from);
  moved_from = std::move(moved);
  EXPECT_EQ(moved_from.readable(), 5U);
  EXPECT_TRUE(moved_from.write_window(0));
  expect_no_numbers(moved);
  const std::vector<Asked<RingBuffer>> table{
      {"RingBuffer::commit", [](auto& one) { one.commit(0); }},
      {"RingBuffer::release", [](auto& one) { one.release(0); }},
      {"RingBuffer::write", [&](auto& one) { one.write(bytes_); }},
      {"RingBuffer::write", [&](auto& one) { one.write(bytes_, nullptr); }},
      {"RingBuffer::read", [&](auto& one) { one.read(bytes_); }},
      {"RingBuffer::read", [&](auto& one) { one.read(bytes_, nullptr); }},
      {"MappedRange::uses", [](auto& one) { static_cast<void>(one.uses()); }},
      {"MappedRange::used_on", [](auto& one) { one.used_on(nullptr); }},
      {"MappedRange::no_longer_used_on", [](auto& one) { one.no_longer_used_on(nullptr); }},
      {"MappedRange::driver", [](auto& one) { static_cast<void>(one.driver()); }},
      {"MappedRange::grant", [&](auto& one) { one.grant(other_); }},
      {"MappedRange::revoke", [&](auto& one) { one.revoke(other_); }}};
  expect_no_numbers(closed);
  expect_answered_and_refused(living, closed, table);
  expect_answered_and_refused(moved_from, moved, table);
  expect_answered_and_refused<cuvmm::RingBuffer>(living, closed,
                                                 {{"RingBuffer::close", [](auto& one) { one.close(); }}});
}

void expect_no_numbers(const StitchedMemory& stitched) {
  EXPECT_EQ(stitched.address(), DeviceAddress());
  EXPECT_EQ(stitched.size(), 0U);
  EXPECT_TRUE(stitched.parts().empty() && stitched.grants().empty() && stitched.unreachable().empty());
  EXPECT_TRUE(stitched.warning().empty());
  expect_no_numbers(stitched.range());
}

TEST_F(OwnersOfNothing, StitchedMemory) {
  const auto stitched = [&] { return StitchedMemory::create(driver(), 4_MiB, {.locations = {device_, other_}}); };
  auto living = stitched();
  auto closed = stitched();
  closed.close();
  auto moved_from = stitched();
  auto moved = std::move(moved_from);
  EXPECT_EQ(moved.parts().size(), 2U);
  expect_no_numbers(moved_from);
  moved_from = std::move(moved);
  EXPECT_EQ(moved_from.parts().size(), 2U);
  expect_no_numbers(moved);
  const std::vector<Asked<StitchedMemory>> table{
      {"StitchedMemory::location_at", [](auto& one) { static_cast<void>(one.location_at(0)); }},
      {"MappedRange::uses", [](auto& one) { static_cast<void>(one.uses()); }},
      {"MappedRange::used_on", [](auto& one) { one.used_on(nullptr); }},
      {"MappedRange::no_longer_used_on", [](auto& one) { one.no_longer_used_on(nullptr); }},
      {"MappedRange::driver", [](auto& one) { static_cast<void>(one.driver()); }}};
  expect_no_numbers(closed);
  EXPECT_TRUE(closed.parts_at(device_).empty());
  expect_answered_and_refused(living, closed, table);
  expect_answered_and_refused(moved_from, moved, table);
  expect_answered_and_refused<cuvmm::StitchedMemory>(living, closed,
                                                     {{"MappedRange::close", [](auto& one) { one.close(); }}});
}

TEST_F(OwnersOfNothing, StitchedArray) {
  auto one = StitchedArray<int>::create(driver(), 100, {.locations = {device_}});
  std::vector<int> values(10, 7);
  EXPECT_NO_THROW(one.write(0, values));
  EXPECT_EQ(one.location_of(0), device_);
  const auto moved = std::move(one);
  EXPECT_EQ(one.data(), nullptr);
  EXPECT_EQ(one.size(), 0U);
  EXPECT_TRUE(one.parts().empty() && one.parts_at(device_).empty());
  EXPECT_THROW(one.write(0, values), InvalidUse);
  EXPECT_THROW(one.read(0, values), InvalidUse);
  EXPECT_THROW(static_cast<void>(one.location_of(0)), InvalidUse);
}

TEST_F(OwnersOfNothing, SleepableMemoryAndItsRanges) {
  auto living = SleepableMemory::create(driver());
  auto nothing = SleepableMemory::create(driver());
  const auto moved = std::move(nothing);
  auto member = living.add("weights", range(), {}, "one");
  EXPECT_NE(member.address(), DeviceAddress());
  EXPECT_EQ(member.tag(), "weights");
  EXPECT_EQ(member.name(), "one");
  EXPECT_FALSE(living.tags().empty());
  EXPECT_NE(living.holdings().awake_bytes, 0U);
  EXPECT_TRUE(nothing.tags().empty());
  EXPECT_EQ(nothing.holdings().awake_bytes, 0U);
  std::vector<SleepableRange> members;
  expect_answered_and_refused<SleepableMemory>(
      living, nothing,
      {{"SleepableMemory::driver", [](auto& one) { static_cast<void>(one.driver()); }},
       {"SleepableMemory::add", [&](auto& one) { members.push_back(one.add("other", range())); }},
       {"SleepableMemory::state", [](auto& one) { static_cast<void>(one.state("weights")); }},
       {"SleepableMemory::sleep", [](auto& one) { one.sleep("weights"); }},
       {"SleepableMemory::wake", [](auto& one) { one.wake("weights"); }}});
  auto closed = range();
  closed.close();
  try {
    static_cast<void>(living.add("closed", std::move(closed)));
    ADD_FAILURE() << "a range that was closed was added";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.call(), "SleepableMemory::add");
  }

  auto empty = living.add("gone", range());
  const auto kept = std::move(empty);
  EXPECT_EQ(empty.address(), DeviceAddress());
  EXPECT_FALSE(empty.asleep());
  EXPECT_TRUE(empty.tag().empty() && empty.name().empty());
  expect_answered_and_refused<SleepableRange>(
      member, empty,
      {{"SleepableRange::range", [](auto& one) { static_cast<void>(one.range()); }},
       {"SleepableRange::range", [](auto& one) { static_cast<void>(std::as_const(one).range()); }}});
}

void expect_no_numbers(const sharing::AttachedRange& attached) {
  EXPECT_TRUE(attached.name().empty());
  EXPECT_EQ(attached.address(), DeviceAddress());
  EXPECT_EQ(attached.size() + attached.capacity() + attached.generation(), 0U);
  EXPECT_EQ(attached.rights(), AccessRights::none);
  EXPECT_EQ(attached.publisher().process, 0);
  EXPECT_EQ(attached.descriptor(), -1);
}

TEST_F(OwnersOfNothing, AttachedRange) {
  auto source = new_range(2);
  auto published = publisher_.publish("range", source);
  auto living = attach();
  EXPECT_EQ(living.name(), "range");
  EXPECT_NE(living.address(), DeviceAddress());
  EXPECT_EQ(living.capacity(), 4_MiB);
  EXPECT_NE(living.publisher().process, 0);
  auto detached = attach();
  detached.detach();
  auto moved_from = attach();
  const auto moved = std::move(moved_from);
  source.append(2_MiB);
  published.update(source);
  const std::vector<Asked<sharing::AttachedRange>> table{
      {"AttachedRange::range", [](auto& one) { static_cast<void>(one.range()); }},
      {"AttachedRange::uses", [](auto& one) { static_cast<void>(one.uses()); }},
      {"AttachedRange::used_on", [](auto& one) { one.used_on(nullptr); }},
      {"AttachedRange::no_longer_used_on", [](auto& one) { one.no_longer_used_on(nullptr); }},
      {"AttachedRange::poll", [](auto& one) { static_cast<void>(one.poll()); }},
      {"AttachedRange::wait", [](auto& one) { static_cast<void>(one.wait(soon())); }},
      {"AttachedRange::follow", [](auto& one) { one.follow(soon()); }}};
  for (auto* nothing : {&detached, &moved_from}) {
    expect_no_numbers(*nothing);
    auto one = attach();
    source.append(2_MiB);
    published.update(source);
    expect_answered_and_refused(one, *nothing, table);
  }
  expect_answered_and_refused<sharing::AttachedRange>(living, detached,
                                                      {{"AttachedRange::detach", [](auto& one) { one.detach(); }}});
}

TEST_F(OwnersOfNothing, PublishedRangeAndItsPublisher) {
  auto source = new_range(2);
  auto living = publisher_.publish("range", source);
  auto nothing = publisher_.publish("other", source);
  const auto moved = std::move(nothing);
  EXPECT_EQ(living.name(), "range");
  EXPECT_EQ(living.size(), 4_MiB);
  EXPECT_TRUE(nothing.name().empty());
  EXPECT_EQ(nothing.generation() + nothing.size() + nothing.chunks(), 0U);
  EXPECT_TRUE(nothing.attached().empty());
  expect_answered_and_refused<sharing::PublishedRange>(
      living, nothing,
      {{"PublishedRange::update", [&](auto& one) { one.update(source); }},
       {"PublishedRange::withdraw", [](auto& one) { one.withdraw(soon()); }}});

  auto empty = sharing::RangePublisher::unconnected();
  const auto kept = std::move(empty);
  EXPECT_EQ(empty.connected(), 0U);
  std::vector<sharing::PublishedRange> all;
  expect_answered_and_refused<sharing::RangePublisher>(
      publisher_, empty,
      {{"RangePublisher::publish", [&](auto& one) { all.push_back(one.publish("third", source)); }},
       {"RangePublisher::serve", [](auto& one) { one.serve(sharing::DescriptorSocket::pair().first); }}});
  auto living_range = new_range(1);
  auto closed = new_range(1);
  closed.close();
  expect_answered_and_refused<cuvmm::MappedRange>(
      living_range, closed,
      {{"RangePublisher::publish", [&](auto& one) { all.push_back(publisher_.publish("fourth", one)); }}});
}

TEST_F(OwnersOfNothing, Sockets) {
  auto [one, other] = sharing::DescriptorSocket::pair();
  const std::vector<std::byte> text(3);
  const sharing::MessageView message{.kind = sharing::first_free_kind, .bytes = text};
  EXPECT_TRUE(one.try_send(message, soon()));
  EXPECT_TRUE(other.try_receive(soon()));
  const auto moved = std::move(one);
  EXPECT_EQ(one.descriptor(), -1);
  const auto expect_gone = [](const auto& result) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().kind, ErrorKind::peer_gone) << result.failure().message();
  };
  expect_gone(one.try_send(message, soon()));
  expect_gone(one.try_receive(soon()));
  expect_gone(one.try_ask(message, soon()));
  one.close();

  const auto name = "cuvmm-owners-of-nothing-" + std::to_string(::getpid());
  auto listener = sharing::DescriptorListener::listen(sharing::SocketAddress::abstract(name), {}, soon());
  EXPECT_FALSE(listener.descriptors().empty());
  auto living = std::move(listener);
  EXPECT_TRUE(listener.descriptors().empty());
  const auto accepted = listener.try_accept(soon());
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.failure().call, "DescriptorListener::accept");
  EXPECT_EQ(accepted.failure().kind, ErrorKind::invalid_use);
  EXPECT_FALSE(living.descriptors().empty());
}

TEST_F(OwnersOfNothing, ShareableHandle) {
  const auto exported = memory();
  auto living = sharing::ShareableHandle::export_from(exported, HandleType::posix_file_descriptor);
  auto nothing = sharing::ShareableHandle::export_from(exported, HandleType::posix_file_descriptor);
  const auto moved = std::move(nothing);
  EXPECT_GE(living.descriptor(), 0);
  EXPECT_EQ(nothing.descriptor(), -1);
  expect_answered_and_refused<sharing::ShareableHandle>(
      living, nothing,
      {{"ShareableHandle::import_into",
        [&](auto& one) { static_cast<void>(one.import_into(driver(), {.bytes = 2_MiB})); }},
       {"ShareableHandle::give_out_descriptor", [](auto& one) { static_cast<void>(one.give_out_descriptor()); }}});
}

}  // namespace
}  // namespace cuvmm
