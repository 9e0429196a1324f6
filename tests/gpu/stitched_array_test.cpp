// Stitched memory on GPUs: it lies where it is said to lie, and every device that was granted reaches all of it.
#include "cuvmm/stitched_array.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

class StitchedArrayOnGpu : public test::OnGpu {
 protected:
  // All devices, and a NUMA node of the host where there is memory of such.
  std::vector<Location> all_places() const {
    std::vector<Location> places;
    for (const Device& each : driver_.devices()) places.push_back(each.location());
    if (device_.supports_host_numa_memory())
      places.push_back(Location::host_numa(std::max(0, device_.host_numa_node())));
    return places;
  }
  void expect_it_works(const StitchedLayout& layout) {
    auto array =
        StitchedArray<std::uint32_t>::create(driver_, 10'000'000, {.locations = all_places(), .layout = layout});
    std::vector<std::uint32_t> sent(array.size());
    std::iota(sent.begin(), sent.end(), 1u);
    std::size_t counted = 0;
    for (const auto& part : array.parts()) {
      counted += part.count;
      const auto owner = PhysicalMemory::retain(driver_, array.address() + part.first * sizeof(std::uint32_t));
      EXPECT_EQ(owner.properties().location, part.location);
      if (part.location.kind != LocationKind::device) continue;
      // Each device writes its own part.
      const CurrentContext local(driver_.device(DeviceOrdinal(part.location.id)));
      array.write(part.first, std::span(sent).subspan(part.first, part.count));
    }
    EXPECT_EQ(counted, array.size());
    for (const auto& part : array.parts())
      if (part.location.kind != LocationKind::device)
        array.write(part.first, std::span(sent).subspan(part.first, part.count));
    for (const AccessGrant& grant : array.memory().grants()) {
      const CurrentContext reader(driver_.device(DeviceOrdinal(grant.location.id)));
      std::vector<std::uint32_t> received(array.size());
      array.read(0, received);
      EXPECT_EQ(received, sent) << to_string(grant.location);
    }
    for (const DeviceOrdinal each : array.memory().unreachable())
      std::printf("[ note ] device %d does not reach all of the memory\n", each.value);
    array.memory().close();
  }
};

TEST_F(StitchedArrayOnGpu, BlocksLieWhereTheyAreSaidToAndAllReachThem) {
  expect_it_works(StitchedLayout::block());
}

TEST_F(StitchedArrayOnGpu, PiecesLieWhereTheyAreSaidToAndAllReachThem) {
  expect_it_works(StitchedLayout::cyclic(4_MiB));
}

}  // namespace
}  // namespace cuvmm
