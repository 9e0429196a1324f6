// Random walks over shapes on the emulated driver.
#include <gtest/gtest.h>

#include "range/range_machine.hpp"
#include "recording_handler.hpp"
#include "shapes/shape_walk.hpp"

namespace cuvmm {
namespace {

using test::Alive;

TEST(ShapesRandomWalks, AThousandLeaveNothingAndLoseNothing) {
  constexpr unsigned walks = 1000;
  test::RangeMachine machine(test::strict_machine(2));
  const CurrentContext context(machine.driver().device(DeviceOrdinal(0)));
  const test::WalkWorld world{machine.driver(),
                              machine.faults(),
                              machine.emulated(),
                              {Location::device(DeviceOrdinal(0)), Location::device(DeviceOrdinal(1))}};
  for (unsigned seed = 0; seed < walks; ++seed) {
    SCOPED_TRACE("walk " + std::to_string(seed));
    const test::RecordingHandler clean_up;  // of undoing that fails as well
    {
      test::ShapeWalk walk(world, seed);
      for (int i = 0; i < 16; ++i) {
        walk.step();
        if (testing::Test::HasFatalFailure()) return;
        walk.check();
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    ASSERT_EQ(machine.alive(), Alive{});
  }
}

}  // namespace
}  // namespace cuvmm
