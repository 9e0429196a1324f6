// What the CUDA driver of this machine has of the entry points that are listed.
#include <gtest/gtest.h>

#include "driver/loaded_driver.hpp"

namespace cuvmm::driver {
namespace {

TEST(LoadedEntryPoints, AreAllThereThatTheDriversVersionHas) {
  const auto driver = load_driver();
  int version = 0;
  ASSERT_EQ(driver->cuDriverGetVersion(&version), CUDA_SUCCESS);
  for (const EntryPointInfo& entry : entry_points)
    if (entry.group != EntryPointGroup::multicast && entry.version <= version) {
      EXPECT_TRUE(driver->has(entry.entry_point)) << entry.name;
    }
}

TEST(LoadedEntryPoints, AnswerAVersionOfAtLeastTheirOwn) {
  const auto driver = load_driver();
  int version = 0;
  ASSERT_EQ(driver->cuDriverGetVersion(&version), CUDA_SUCCESS);
  for (const EntryPointInfo& entry : entry_points)
    if (driver->has(entry.entry_point)) {
      EXPECT_LE(entry.version, version) << entry.name;
    }
}

}  // namespace
}  // namespace cuvmm::driver
