// Copies that are refused for want of rights tell which of several reasons it was.
#include "access_refusal.hpp"

#include <gtest/gtest.h>

#include "cuvmm/cuvmm.hpp"
#include "emulated_machine.hpp"

namespace cuvmm {
namespace {

class AccessRefusal : public testing::Test {
 protected:
  template <class Call>
  static Failure refusal_of(Call&& call) {
    try {
      call();
    } catch (const InvalidUse& error) {
      EXPECT_EQ(error.failure().rule_ids, "ACCESS-NEEDED");
      return error.failure();
    }
    ADD_FAILURE() << "nothing was refused";
    return {};
  }

  test::EmulatedMachine machine_{test::machine("h200-580", 2)};
  Driver driver_ = machine_.driver();
  const Device first_ = driver_.device(DeviceOrdinal(0));
  const Device second_ = driver_.device(DeviceOrdinal(1));
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
};

TEST_F(AccessRefusal, AnotherDevicesContextIsTold) {
  auto range = MappedRange::create(driver_, {.capacity = 16_MiB});
  range.append(4_MiB);
  {
    const CurrentContext wrong(second_);
    for (const Failure& failure : {refusal_of([&] { copy_bytes_to_device(range, 0, bytes_); }),
                                   refusal_of([&] { copy_bytes_from_device(bytes_, range, 0); })}) {
      EXPECT_EQ(failure.rule.find("Device 1, whose context is current, may not "), 0U) << failure.message();
      EXPECT_NE(failure.way_out.find("make a context of device 0 current"), std::string::npos) << failure.message();
      EXPECT_NE(failure.way_out.find("Grant device 1 the right to "), std::string::npos) << failure.message();
    }
  }
  const CurrentContext right(first_);
  EXPECT_NO_THROW(copy_bytes_to_device(range, 0, bytes_));
}

TEST_F(AccessRefusal, AHoleIsTold) {
  auto range = MappedRange::create(driver_, {.capacity = 16_MiB});
  range.append(2_MiB);
  range.map(4_MiB, 2_MiB);
  const CurrentContext context(first_);
  const Failure failure = refusal_of([&] { copy_bytes_to_device(range, 2_MiB - 96, bytes_); });
  EXPECT_NE(failure.rule.find(", byte 96 of those to be touched"), std::string::npos) << failure.message();
  EXPECT_NE(failure.way_out.find("a hole"), std::string::npos) << failure.message();
  EXPECT_NO_THROW(copy_bytes_to_device(range, 2_MiB - 4096, bytes_));
  range.map(2_MiB, 2_MiB);
  EXPECT_NO_THROW(copy_bytes_to_device(range, 2_MiB - 96, bytes_));
}

TEST_F(AccessRefusal, WhatMayOnlyBeReadIsTold) {
  auto range = MappedRange::create(
      driver_, {.capacity = 16_MiB, .grants = {{first_.location()}, {second_.location(), AccessRights::read}}});
  range.append(2_MiB);
  const CurrentContext context(second_);
  EXPECT_NO_THROW(copy_bytes_from_device(bytes_, range, 0));
  const Failure failure = refusal_of([&] { copy_bytes_to_device(range, 0, bytes_); });
  EXPECT_EQ(failure.rule.find("Device 1, whose context is current, may only read at "), 0U) << failure.message();
  range.grant(second_.location());
  EXPECT_NO_THROW(copy_bytes_to_device(range, 0, bytes_));
}

TEST_F(AccessRefusal, CopiesOfBuffersTellIt) {
  auto buffer = DeviceBuffer::create(driver_, {.capacity = 16_MiB});
  buffer.resize(2_MiB);
  {
    const CurrentContext wrong(second_);
    const auto stream = nullptr;
    for (const Failure& failure :
         {refusal_of([&] { buffer.write(0, bytes_); }), refusal_of([&] { buffer.read(0, bytes_); }),
          refusal_of([&] { static_cast<void>(buffer.write(0, bytes_, stream)); }),
          refusal_of([&] { static_cast<void>(buffer.read(0, std::span(bytes_), stream)); })})
      EXPECT_NE(failure.way_out.find("make a context of device 0 current"), std::string::npos) << failure.message();
  }
  const CurrentContext right(first_);
  EXPECT_NO_THROW(buffer.write(0, bytes_));
}

TEST_F(AccessRefusal, OtherFailuresStayWhatTheyAre) {
  Failure failure;
  failure.code = abi::CUDA_ERROR_INVALID_VALUE;
  failure.rule_ids = "HANDLE-LIVE";
  failure.rule = "another";
  EXPECT_EQ(with_access_told(failure, driver_, DeviceAddress(4096), 4096, AccessRights::read).rule, "another");
}

}  // namespace
}  // namespace cuvmm
