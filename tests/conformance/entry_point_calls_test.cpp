#include "conformance/cases/entry_point_calls.hpp"

#include <gtest/gtest.h>

#include "fake_driver.hpp"

namespace cuvmm::conformance {

namespace {

TEST(EntryPointCalls, CoverEveryEntryPointButMulticast) {
  for (const driver::EntryPointInfo& entry : driver::entry_points) {
    std::size_t calls = 0;
    for (const EntryPointCall& each : entry_point_calls())
      if (each.entry_point == entry.entry_point) ++calls;
    EXPECT_EQ(calls, entry.group == driver::EntryPointGroup::multicast ? 0U : 1U) << entry.name;
  }
}

TEST(EntryPointCalls, CallWhatTheySay) {
  for (const EntryPointCall& each : entry_point_calls()) {
    test::FakeDriver fake;
    Objects none;
    EXPECT_EQ(each.call(fake, none), CUDA_SUCCESS);
    EXPECT_EQ(fake.calls, std::vector<driver::EntryPoint>{each.entry_point}) << driver::name(each.entry_point);
  }
}

}  // namespace

}  // namespace cuvmm::conformance
