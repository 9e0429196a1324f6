#include "driver/advice.hpp"

#include <gtest/gtest.h>

namespace cuvmm::driver {
namespace {

using namespace abi;

TEST(Advice, PrefersWhatIsKnownOfTheCall) {
  EXPECT_NE(advice_for(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED).rule.find("whole allocation"),
            std::string_view::npos);
  EXPECT_NE(advice_for(EntryPoint::cuMemcpyDtoH, CUDA_ERROR_INVALID_VALUE).way_out.find("Grant"),
            std::string_view::npos);
  EXPECT_NE(advice_for(EntryPoint::cuMemUnmap, CUDA_ERROR_ILLEGAL_ADDRESS).way_out.find("Wait for all work"),
            std::string_view::npos);
  EXPECT_EQ(advice_for(EntryPoint::cuMemMap, CUDA_ERROR_UNKNOWN).rule, "");
}

TEST(Advice, EveryRuleHasAWayOut) {
  for (const EntryPointInfo& entry : entry_points)
    for (int code = 1; code < 1000; ++code) {
      const Advice advice = advice_for(entry.entry_point, static_cast<CUresult>(code));
      EXPECT_EQ(advice.rule.empty(), advice.way_out.empty()) << entry.name << ' ' << code;
    }
}

TEST(Advice, EveryVirtualMemoryCallExplainsInvalidValue) {
  for (const EntryPointInfo& entry : entry_points)
    if (entry.group == EntryPointGroup::vmm) {
      EXPECT_NE(advice_for(entry.entry_point, CUDA_ERROR_INVALID_VALUE).rule, "") << entry.name;
    }
}

TEST(Advice, OnlyAllocatingCallsRunOutOfDeviceMemory) {
  EXPECT_EQ(kind_of(EntryPoint::cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY, false), ErrorKind::out_of_device_memory);
  EXPECT_EQ(kind_of(EntryPoint::cuMemAlloc, CUDA_ERROR_OUT_OF_MEMORY, false), ErrorKind::out_of_device_memory);
  EXPECT_EQ(kind_of(EntryPoint::cuMemExportToShareableHandle, CUDA_ERROR_OUT_OF_MEMORY, false),
            ErrorKind::driver_failure);
  EXPECT_EQ(kind_of(EntryPoint::cuMemImportFromShareableHandle, CUDA_ERROR_OUT_OF_MEMORY, false),
            ErrorKind::driver_failure);
}

TEST(Advice, KindsOfCodes) {
  const auto kind = [](CUresult result) { return kind_of(EntryPoint::cuMemSetAccess, result, false); };
  EXPECT_EQ(kind(CUDA_ERROR_INVALID_VALUE), ErrorKind::invalid_use);
  EXPECT_EQ(kind(CUDA_ERROR_NOT_SUPPORTED), ErrorKind::not_supported);
  EXPECT_EQ(kind(CUDA_ERROR_NOT_PERMITTED), ErrorKind::not_permitted);
  EXPECT_EQ(kind(CUDA_ERROR_ILLEGAL_ADDRESS), ErrorKind::device_lost);
  EXPECT_EQ(kind(CUDA_ERROR_TIMEOUT), ErrorKind::timed_out);
  EXPECT_EQ(kind(CUDA_ERROR_NO_DEVICE), ErrorKind::driver_unavailable);
  EXPECT_EQ(kind(CUDA_ERROR_SYSTEM_NOT_READY), ErrorKind::driver_failure);
  EXPECT_EQ(kind_of(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED, false), ErrorKind::invalid_use);
  EXPECT_EQ(kind_of(EntryPoint::cuMemImportFromShareableHandle, CUDA_ERROR_UNKNOWN, false), ErrorKind::invalid_use);
}

}  // namespace
}  // namespace cuvmm::driver
