#include "cuvmm/error.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace cuvmm {
namespace {

Failure failure_of(ErrorKind kind) {
  Failure failure;
  failure.kind = kind;
  failure.call = "cuMemCreate";
  failure.arguments = "size = 2097152 (2 MiB)";
  failure.code = 2;
  failure.code_name = "CUDA_ERROR_OUT_OF_MEMORY";
  failure.rule = "There must be memory";
  failure.way_out = "Release some.";
  return failure;
}

template <class Exception>
void expect_raised_as(ErrorKind kind) {
  try {
    raise(failure_of(kind));
  } catch (const Exception& error) {
    EXPECT_EQ(typeid(error), typeid(Exception)) << to_string(kind);
    EXPECT_EQ(error.kind(), kind);
    EXPECT_EQ(error.code(), 2);
    EXPECT_EQ(error.call(), "cuMemCreate");
    EXPECT_EQ(error.rule(), "There must be memory");
    EXPECT_EQ(error.way_out(), "Release some.");
    return;
  } catch (const std::exception& other) {
    FAIL() << "raised as another type: " << other.what();
  }
}

TEST(Error, EachKindHasItsOwnType) {
  expect_raised_as<Error>(ErrorKind::driver_failure);
  expect_raised_as<OutOfDeviceMemory>(ErrorKind::out_of_device_memory);
  expect_raised_as<OutOfHostMemory>(ErrorKind::out_of_host_memory);
  expect_raised_as<OutOfAddressSpace>(ErrorKind::out_of_address_space);
  expect_raised_as<OutOfMulticastSlots>(ErrorKind::out_of_multicast_slots);
  expect_raised_as<OutOfDescriptors>(ErrorKind::out_of_descriptors);
  expect_raised_as<NotSupported>(ErrorKind::not_supported);
  expect_raised_as<NotPermitted>(ErrorKind::not_permitted);
  expect_raised_as<InvalidUse>(ErrorKind::invalid_use);
  expect_raised_as<TimedOut>(ErrorKind::timed_out);
  expect_raised_as<PeerGone>(ErrorKind::peer_gone);
  expect_raised_as<ProtocolViolation>(ErrorKind::protocol_violation);
  expect_raised_as<DeviceLost>(ErrorKind::device_lost);
  expect_raised_as<DriverUnavailable>(ErrorKind::driver_unavailable);
}

TEST(Error, TheTypeDecidesTheKind) {
  const OutOfDescriptors error(failure_of(ErrorKind::out_of_device_memory));
  EXPECT_EQ(error.kind(), ErrorKind::out_of_descriptors);
  EXPECT_NE(std::string(error.what()).find("out of file descriptors"), std::string::npos) << error.what();
}

TEST(Error, CopyingDoesNotThrow) {
  EXPECT_TRUE(std::is_nothrow_copy_constructible_v<OutOfDeviceMemory>);
  const Error original(failure_of(ErrorKind::invalid_use));
  const Error copy = original;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_STREQ(copy.what(), original.what());
  EXPECT_EQ(&copy.failure(), &original.failure());
}

TEST(Error, MessageNamesCallArgumentsCodeRuleAndWayOut) {
  EXPECT_EQ(failure_of(ErrorKind::out_of_device_memory).message(),
            "cuMemCreate(size = 2097152 (2 MiB)): out of device memory (CUDA_ERROR_OUT_OF_MEMORY = 2). "
            "There must be memory. Release some.");
}

TEST(Error, MessageTellsMemoryNumbersThatAreKnown) {
  Failure failure;
  failure.kind = ErrorKind::out_of_device_memory;
  failure.asked_bytes = (std::size_t{2} << 20) + 1;
  failure.rounded_bytes = std::size_t{4} << 20;
  failure.free_bytes = 0;
  EXPECT_EQ(failure.message(),
            "out of device memory. Memory: asked 2097153 B (about 2.00 MiB), rounded up to 4 MiB, free 0 B.");
}

TEST(Error, MessageTellsFeatureAndReason) {
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.feature = "multicast";
  failure.reason = "the device has no switch";
  EXPECT_EQ(failure.message(), "not supported. Feature: multicast: the device has no switch.");
}

class CleanupHandler : public testing::Test {
 protected:
  void TearDown() override { set_cleanup_failure_handler({}); }
};

TEST_F(CleanupHandler, ReceivesWhatIsReported) {
  std::vector<std::string> calls;
  set_cleanup_failure_handler([&](const Failure& failure) { calls.push_back(failure.call); });
  report_cleanup_failure(failure_of(ErrorKind::invalid_use));
  EXPECT_EQ(calls, std::vector<std::string>{"cuMemCreate"});
}

TEST_F(CleanupHandler, SettingReturnsThePreviousOne) {
  int first = 0;
  EXPECT_FALSE(set_cleanup_failure_handler([&](const Failure&) { ++first; }));
  const CleanupFailureHandler previous = set_cleanup_failure_handler([](const Failure&) {});
  ASSERT_TRUE(previous);
  previous(Failure{});
  EXPECT_EQ(first, 1);
}

TEST_F(CleanupHandler, DefaultWritesToStandardError) {
  testing::internal::CaptureStderr();
  report_cleanup_failure(failure_of(ErrorKind::invalid_use));
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_NE(written.find("clean-up failed: cuMemCreate(size"), std::string::npos) << written;
}

TEST_F(CleanupHandler, OneThatThrowsIsReplacedByTheDefault) {
  set_cleanup_failure_handler([](const Failure&) { throw std::runtime_error("handler"); });
  testing::internal::CaptureStderr();
  report_cleanup_failure(failure_of(ErrorKind::invalid_use));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cuMemCreate"), std::string::npos);
}

TEST(Error, WhatTheArgumentsTellIsNotToldAgain) {
  Failure failure;
  failure.kind = ErrorKind::out_of_device_memory;
  failure.call = "acquire";
  failure.arguments = "bytes = 4194304 (4 MiB)";
  failure.asked_bytes = std::size_t{4} << 20;
  failure.rounded_bytes = std::size_t{4} << 20;
  failure.live_bytes = 0;
  EXPECT_EQ(failure.message(), "acquire(bytes = 4194304 (4 MiB)): out of device memory. Memory: live here 0 B.");
  failure.arguments = "bytes = 14194304, more = 41943040";
  EXPECT_EQ(failure.message(),
            "acquire(bytes = 14194304, more = 41943040): out of device memory. Memory: asked 4 MiB, live here 0 B.")
      << "a part of another number is none";
  failure.rounded_bytes = std::size_t{6} << 20;
  EXPECT_NE(failure.message().find("asked 4 MiB, rounded up to 6 MiB"), std::string::npos) << failure.message();
}

TEST_F(CleanupHandler, WhatACallbackThrewIsToldAsThat) {
  Failure failure;
  failure.callback = "ReclaimHook(device 0, bytes = 5)";
  failure.rule = "no";
  failure.way_out = "Catch it";
  EXPECT_EQ(failure.message(), "ReclaimHook(device 0, bytes = 5) threw: no. Catch it.");
  testing::internal::CaptureStderr();
  report_cleanup_failure(failure);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "cuvmm: a callback failed: ReclaimHook(device 0, bytes = 5) threw: no. Catch it.\n");
  failure = failure_of(ErrorKind::invalid_use);
  failure.callback = "ReclaimHook()";
  EXPECT_EQ(failure.message().find("ReclaimHook() threw: cuMemCreate(size = 2097152 (2 MiB)): invalid use"), 0U)
      << failure.message();
}

}  // namespace
}  // namespace cuvmm
