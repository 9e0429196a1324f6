// What the library refuses by itself names the rule of the rule book that it would break, where there is one.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/sharing.hpp"
#include "driver/decorator.hpp"
#include "emulator/rule.hpp"
#include "range/range_machine.hpp"

namespace cuvmm {
namespace {

const Location device0 = Location::device(DeviceOrdinal(0));

class RefusalRules : public testing::Test {
 protected:
  [[nodiscard]] const Driver& driver() const { return machine_.driver(); }
  [[nodiscard]] MappedRange range() const { return range_at(device0, {}); }
  [[nodiscard]] MappedRange range_at(const Location& location, std::vector<AccessGrant> grants) const {
    MappedRangeOptions options;
    options.capacity = 64_MiB;
    options.chunks = ChunkPolicy::fixed(4_MiB);
    options.memory.location = location;
    options.grants = std::move(grants);
    auto made = MappedRange::create(driver(), options);
    made.append(4_MiB);
    return made;
  }
  [[nodiscard]] MappedRange made_with(const std::function<void(MappedRangeOptions&)>& change) const {
    MappedRangeOptions options;
    options.capacity = 64_MiB;
    change(options);
    return MappedRange::create(driver(), options);
  }

  test::RangeMachine machine_{test::strict_machine(2)};
};

struct Refused {
  std::string what;
  std::string rule_ids;
  std::function<void()> call;
};

void expect_rules(const std::vector<Refused>& table) {
  for (const auto& [what, rule_ids, call] : table) {
    EXPECT_TRUE(emulator::find_rule(rule_ids)) << rule_ids;
    try {
      call();
      ADD_FAILURE() << what << " was not refused";
    } catch (const InvalidUse& error) {
      EXPECT_EQ(error.failure().rule_ids, rule_ids) << what << ": " << error.what();
    }
  }
}

TEST_F(RefusalRules, OfTheOptionsOfARange) {
  const auto with = [&](std::function<void(MappedRangeOptions&)> change) {
    return [this, change = std::move(change)] { (void)made_with(change); };
  };
  expect_rules({
      {"no such device", "CREATE-LOCATION",
       with([](auto& o) { o.memory.location = Location::device(DeviceOrdinal(7)); })},
      {"no such kind of location", "CREATE-LOCATION", with([](auto& o) {
         o.memory.location = {LocationKind(9), 0};
       })},
      {"too large", "RANGE-FITS", with([](auto& o) { o.capacity = SIZE_MAX; })},
      {"alignment", "RESERVE-ALIGNMENT", with([](auto& o) { o.alignment = 3; })},
      {"handles of the host", "CREATE-HANDLE-TYPE", with([](auto& o) {
         o.memory = {.location = Location::host(), .handle_types = HandleType::posix_file_descriptor};
       })},
      {"rights that there are none of", "ACCESS-DESCRIPTORS", with([](auto& o) {
         o.grants = {{device0, AccessRights(2)}};
       })},
      {"device memory for the host", "ACCESS-HOST-LOCATION", with([](auto& o) {
         o.grants = {{Location::host(), AccessRights::read}};
       })},
      {"a grant to no device", "ACCESS-DESCRIPTORS", with([](auto& o) {
         o.grants = {{Location::device(DeviceOrdinal(7)), AccessRights::read}};
       })},
  });
}

TEST_F(RefusalRules, OfChangesOfARange) {
  auto one = range();
  auto of_host = range_at(Location::host(), {{Location::host(), AccessRights::read_write}});
  auto empty = MappedRange::create(driver(), {.capacity = 64_MiB});
  const auto memory = one.source()->acquire({}, 2_MiB);
  const std::size_t far = SIZE_MAX / 2 / 2_MiB * 2_MiB;
  expect_rules({
      {"append too much", "RANGE-FITS", [&] { one.append(SIZE_MAX); }},
      {"map at an odd offset", "MAP-ADDRESS-ALIGNED", [&] { one.map(8_MiB + 1, 2_MiB); }},
      {"map an odd size", "CREATE-SIZE-GRANULARITY", [&] { one.map(8_MiB, 1); }},
      {"map far away", "RANGE-FITS", [&] { one.map(far, 2_MiB); }},
      {"map over a chunk", "MAP-FREE-ADDRESSES", [&] { one.map(0, 2_MiB); }},
      {"map memory at an odd offset", "MAP-ADDRESS-ALIGNED", [&] { one.map(8_MiB + 1, memory); }},
      {"map memory over a chunk", "MAP-FREE-ADDRESSES", [&] { one.map(2_MiB, memory); }},
      {"map memory far away", "RANGE-FITS", [&] { one.map(far, memory); }},
      {"device memory for the host", "ACCESS-HOST-LOCATION", [&] { of_host.append(2_MiB, device0); }},
      {"unmap what is not reserved", "UNMAP-IN-RESERVATION", [&] { one.unmap(0, SIZE_MAX / 2); }},
      {"unmap half a chunk", "UNMAP-WHOLE-MAPPINGS", [&] { one.unmap(0, 2_MiB); }},
      {"grant no rights", "ACCESS-DESCRIPTORS", [&] { one.grant(device0, AccessRights(2)); }},
      {"grant to the host", "ACCESS-HOST-LOCATION", [&] { one.grant(Location::host()); }},
      {"grant to no device, of nothing", "ACCESS-DESCRIPTORS",
       [&] { empty.grant(Location::device(DeviceOrdinal(7))); }},
      {"grant to no device", "ACCESS-DESCRIPTORS", [&] { one.grant(Location::device(DeviceOrdinal(7))); }},
  });
  EXPECT_EQ(one.mapped_bytes(), 4_MiB);
  EXPECT_NO_THROW(one.map(8_MiB, memory));
}

TEST_F(RefusalRules, OfTheOwners) {
  auto reservation = AddressReservation::create(driver(), 2_MiB);
  const auto memory = PhysicalMemory::create(driver(), {}, 4_MiB);
  const auto small = PhysicalMemory::create(driver(), {}, 2_MiB);
  const auto mapping = Mapping::create(reservation, 0, small);
  std::vector<std::byte> bytes(8);
  expect_rules({
      {"a mapping that ends behind", "MAP-INSIDE-ONE-RESERVATION",
       [&] { (void)Mapping::create(reservation, 0, memory); }},
      {"addresses with mappings", "FREE-AFTER-UNMAP", [&] { reservation.free(); }},
      {"no handle", "HANDLE-LIVE", [&] { (void)PhysicalMemory::adopt(driver(), 0, 2_MiB); }},
      {"memory without a size", "CREATE-SIZE-GRANULARITY", [&] { (void)PhysicalMemory::adopt(driver(), 16, 0); }},
      {"memory that is too large", "RANGE-FITS", [&] { (void)PhysicalMemory::adopt(driver(), 16, SIZE_MAX); }},
      {"addresses without a size", "FREE-WHOLE-RESERVATION",
       [&] { (void)AddressReservation::adopt(driver(), mapping.address(), 0); }},
      {"a copy behind the end", "ACCESS-NEEDED", [&] { copy_to_device(mapping, 2_MiB, bytes); }},
      {"a device that there is not", "DEVICE-EXISTS", [&] { (void)driver().device(DeviceOrdinal(7)); }},
      {"a dma-buf of nothing", "DMA-BUF-RANGE", [&] { (void)dma_bufs(driver(), mapping.address(), 0); }},
  });
}

TEST_F(RefusalRules, OfSharing) {
  const auto memory = PhysicalMemory::create(driver(), {.handle_types = HandleType::posix_file_descriptor}, 2_MiB);
  const auto handle = sharing::ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  const auto alone = PhysicalMemory::create(driver(), {}, 2_MiB);
  auto shared = MappedRange::create(driver(), {.capacity = 64_MiB,
                                               .memory = {.handle_types = HandleType::posix_file_descriptor},
                                               .chunks = ChunkPolicy::fixed(4_MiB)});
  shared.append(4_MiB);
  auto publisher = sharing::RangePublisher::unconnected();
  expect_rules({
      {"a handle of no size", "MAP-WHOLE-ALLOCATION", [&] { (void)handle.import_into(driver(), {.bytes = 0}); }},
      {"no descriptor", "IMPORT-DESCRIPTOR", [&] { (void)sharing::ShareableHandle::adopt(UniqueDescriptor()); }},
      {"part of a chunk", "MAP-WHOLE-ALLOCATION",
       [&] { (void)publisher.publish("part", shared, {.offset = 0, .bytes = 2_MiB}); }},
  });
  const auto exported = sharing::ShareableHandle::try_export_from(alone, HandleType::posix_file_descriptor);
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.failure().rule_ids, "EXPORT-REQUESTED, EXPORT-NOT-IMPORTED");
}

// What the driver answers by one code to whatever was wrong is found out, and named by one rule.
class Silent final : public driver::Decorator<Silent> {
 public:
  using Decorator::Decorator;
  [[nodiscard]] std::string explanation() const override { return {}; }
};

TEST_F(RefusalRules, OfWhatTheDriverDoesNotExplain) {
  const Driver silent = Driver::wrap(std::make_shared<Silent>(driver().shared_interface()));
  const auto reservation = AddressReservation::create(silent, 8_MiB);
  const auto memory = PhysicalMemory::create(silent, {}, 2_MiB);
  const auto mapping = Mapping::create(reservation, 2_MiB, memory);
  std::vector<Mapping> more;
  expect_rules({
      {"an odd offset", "MAP-ADDRESS-ALIGNED", [&] { (void)Mapping::create(reservation, 4096, memory); }},
      {"taken addresses", "MAP-FREE-ADDRESSES", [&] { (void)Mapping::create(reservation, 2_MiB, memory); }},
      {"no size", "RESERVE-SIZE-GRANULARITY", [&] { (void)AddressReservation::create(silent, 0); }},
      {"an odd size", "RESERVE-SIZE-GRANULARITY", [&] { (void)AddressReservation::create(silent, 4096); }},
      {"an odd alignment", "RESERVE-ALIGNMENT", [&] { (void)AddressReservation::create(silent, 2_MiB, 3); }},
      {"an odd hint", "RESERVE-HINT-ALIGNED",
       [&] { (void)AddressReservation::create(silent, 2_MiB, 0, DeviceAddress(4096)); }},
      {"an odd size of memory", "CREATE-SIZE-GRANULARITY", [&] { (void)PhysicalMemory::create(silent, {}, 4096); }},
      {"a node that there is not", "CREATE-LOCATION",
       [&] { (void)PhysicalMemory::create(silent, {.location = Location::host_numa(55)}, 2_MiB); }},
      {"a kind that there is not", "CREATE-LOCATION",
       [&] {
         (void)PhysicalMemory::create(silent, {.location = {LocationKind(9), 0}}, 2_MiB);
       }},
      {"handles of the host", "CREATE-HANDLE-TYPE",
       [&] {
         (void)PhysicalMemory::create(
             silent, {.location = Location::host(), .handle_types = HandleType::posix_file_descriptor}, 2_MiB);
       }},
      {"nobody to grant to", "ACCESS-DESCRIPTORS", [&] { grant(mapping, std::span<const AccessGrant>()); }},
      {"no rights", "ACCESS-DESCRIPTORS", [&] { grant(mapping, device0, AccessRights(2)); }},
      {"the host", "ACCESS-HOST-LOCATION", [&] { grant(mapping, Location::host(), AccessRights::read); }},
  });
  EXPECT_NO_THROW(more.push_back(Mapping::create(reservation, 4_MiB, memory)));
  EXPECT_NO_THROW((void)AddressReservation::create(silent, 2_MiB, 4_MiB));
  EXPECT_NO_THROW(grant(mapping, device0, AccessRights::read));
  EXPECT_NO_THROW((void)PhysicalMemory::create(
      silent, {.location = Location::host_numa(0), .handle_types = HandleType::posix_file_descriptor}, 2_MiB));
}

// The wrong size shows when the memory is mapped: the advice is for whoever imported it.
TEST_F(RefusalRules, OfMemoryThatWasImportedWithAnotherSize) {
  const auto memory = PhysicalMemory::create(driver(), {.handle_types = HandleType::posix_file_descriptor}, 4_MiB);
  const auto handle = sharing::ShareableHandle::export_from(memory, HandleType::posix_file_descriptor);
  const auto reservation = AddressReservation::create(driver(), 4_MiB);
  const auto wrong = handle.import_into(driver(), {.bytes = 2_MiB});
  const auto mapped = Mapping::try_create(reservation, 0, wrong);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.failure().rule_ids, "MAP-WHOLE-ALLOCATION");
  EXPECT_NE(mapped.failure().way_out.find("have whoever created it send PhysicalMemory::size()"), std::string::npos)
      << mapped.failure().message();
  EXPECT_TRUE(Mapping::try_create(reservation, 0, handle.import_into(driver(), {.bytes = 4_MiB})));
}

}  // namespace
}  // namespace cuvmm
