// The random walks over shapes, on GPUs: content is right, and nothing is left.
#include <gtest/gtest.h>

#include "driver/counting_driver.hpp"
#include "on_gpu.hpp"
#include "recording_handler.hpp"
#include "shapes/shape_walk.hpp"

namespace cuvmm {
namespace {

using driver::EntryPoint;

class ShapeWalksOnGpu : public test::OnGpu {
 protected:
  static constexpr int steps = 16;

  void walk(unsigned seed) {
    SCOPED_TRACE("walk " + std::to_string(seed));
    const test::RecordingHandler clean_up;  // of undoing that fails as well
    test::ShapeWalk walk(world_, seed);
    for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
      walk.step();
      if (!HasFatalFailure()) walk.check();
    }
  }

  // The first device, and those that it and that can reach each other.
  [[nodiscard]] std::vector<Location> places() const {
    std::vector<Location> found{device_.location()};
    for (const Device& each : driver_.devices())
      if (each.ordinal() != device_.ordinal() && device_.can_access_peer(each) && each.can_access_peer(device_))
        found.push_back(each.location());
    return found;
  }
  [[nodiscard]] std::size_t free_memory() const {
    std::size_t free = 0, total = 0;
    call<EntryPoint::cuMemGetInfo>(api(), &free, &total);
    return free;
  }

  // Of objects that the driver made and took back, faults apart.
  void expect_as_many_back(const driver::CallCounts& calls) const {
    EXPECT_GT(calls[EntryPoint::cuMemCreate], 0U);
    EXPECT_EQ(calls[EntryPoint::cuMemCreate] + calls[EntryPoint::cuMemRetainAllocationHandle],
              calls[EntryPoint::cuMemRelease]);
    EXPECT_EQ(calls[EntryPoint::cuMemAddressReserve], calls[EntryPoint::cuMemAddressFree]);
    EXPECT_EQ(calls[EntryPoint::cuMemHostAlloc], calls[EntryPoint::cuMemFreeHost]);
    EXPECT_EQ(calls[EntryPoint::cuStreamCreate], calls[EntryPoint::cuStreamDestroy]);
  }

  // Calls pass the faults first, so that those that the driver never saw are not counted.
  std::shared_ptr<driver::CountingDriver> counting_ =
      std::make_shared<driver::CountingDriver>(driver_.shared_interface());
  std::shared_ptr<driver::FaultInjectingDriver> faults_ = std::make_shared<driver::FaultInjectingDriver>(counting_);
  test::WalkWorld world_{Driver::wrap(faults_), *faults_, api(), places()};
};

TEST_F(ShapeWalksOnGpu, AHundredLeaveNothingAndLoseNothing) {
  for (unsigned seed = 0; seed < 5 && !HasFatalFailure(); ++seed) walk(seed);  // what the driver keeps, it keeps now
  const std::size_t free_before = free_memory();
  counting_->reset();
  for (unsigned seed = 0; seed < 100 && !HasFatalFailure(); ++seed) walk(seed);
  expect_as_many_back(counting_->snapshot());
  EXPECT_GE(free_memory() + 16_MiB, free_before) << "but for a little that the driver keeps for streams";
}

}  // namespace
}  // namespace cuvmm
