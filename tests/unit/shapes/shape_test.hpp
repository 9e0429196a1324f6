// What the tests of shapes run on.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "range/range_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm::test {

// A strict machine of some devices, with the first one's context current. Nothing that a destructor reports is passed
// over.
class ShapeTest : public testing::Test {
 protected:
  explicit ShapeTest(int devices) : machine_(strict_machine(devices)) {}

  void TearDown() override {
    for (const Failure& each : clean_up_.failures) ADD_FAILURE() << each.message();
  }
  std::vector<std::byte> read_at(DeviceAddress address, std::size_t bytes) {
    std::vector<std::byte> content(bytes);
    copy_bytes_from_device(machine_.driver(), content, address);
    return content;
  }

  RecordingHandler clean_up_;
  RangeMachine machine_;
  CurrentContext context_{machine_.driver().device(DeviceOrdinal(0))};
};

}  // namespace cuvmm::test
