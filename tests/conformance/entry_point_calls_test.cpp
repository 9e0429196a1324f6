#include "conformance/entry_point_calls.hpp"

#include <gtest/gtest.h>

#include "conformance/drivers.hpp"
#include "fake_driver.hpp"

namespace cuvmm::conformance {

namespace {

TEST(EntryPointCalls, CoverEveryEntryPointButMulticast) {
  for (const driver::EntryPointInfo& entry : driver::entry_points) {
    std::size_t calls = 0;
    for (const auto* const table : {&entry_point_calls(), &unrecorded_entry_point_calls()})
      for (const EntryPointCall& each : *table)
        if (each.entry_point == entry.entry_point) ++calls;
    EXPECT_EQ(calls, entry.group == driver::EntryPointGroup::multicast ? 0U : 1U) << entry.name;
  }
}

TEST(EntryPointCalls, CallWhatTheySay) {
  for (const auto* const table : {&entry_point_calls(), &unrecorded_entry_point_calls()})
    for (const EntryPointCall& each : *table) {
      test::FakeDriver fake;
      Objects none;
      EXPECT_EQ(each.call(fake, none), CUDA_SUCCESS);
      EXPECT_EQ(fake.calls, std::vector<driver::EntryPoint>{each.entry_point}) << driver::name(each.entry_point);
    }
}

TEST(EntryPointCalls, AnswerNotInitializedBeforeInitialisation) {
  const auto emulated = emulated_driver()();
  Objects none;
  for (const EntryPointCall& each : unrecorded_entry_point_calls())
    EXPECT_EQ(each.call(*emulated, none), CUDA_ERROR_NOT_INITIALIZED) << driver::name(each.entry_point);
}

}  // namespace

}  // namespace cuvmm::conformance
