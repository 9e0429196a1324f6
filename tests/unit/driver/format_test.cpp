#include "driver/format.hpp"

#include <gtest/gtest.h>

#include "driver/signature.hpp"

namespace cuvmm::driver {
namespace {

TEST(Format, SplitsArgumentNames) {
  EXPECT_EQ(split_names("()").size(), 0u);
  EXPECT_EQ(split_names("(handle)"), std::vector<std::string_view>{"handle"});
  EXPECT_EQ(split_names("(pointer, size)"), (std::vector<std::string_view>{"pointer", "size"}));
}

TEST(Format, NumbersGoByTheNameOfTheArgument) {
  EXPECT_EQ(format_unsigned("size", 2097152), "2097152 (2 MiB)");
  EXPECT_EQ(format_unsigned("size", 1000), "1000");
  EXPECT_EQ(format_unsigned("pointer", 4096), "0x1000");
  EXPECT_EQ(format_unsigned("flags", 4096), "4096");
}

TEST(Format, Locations) {
  EXPECT_EQ(format_location({CU_MEM_LOCATION_TYPE_DEVICE, 2}), "DEVICE 2");
  EXPECT_EQ(format_location({CU_MEM_LOCATION_TYPE_HOST, 0}), "HOST");
  EXPECT_EQ(format_location({static_cast<CUmemLocationType>(9), 1}), "location type 9 id 1");
}

TEST(Format, HandleTypes) {
  EXPECT_EQ(format_handle_types(0), "NONE");
  EXPECT_EQ(format_handle_types(9), "POSIX_FILE_DESCRIPTOR|FABRIC");
  EXPECT_EQ(format_handle_types(33), "POSIX_FILE_DESCRIPTOR|0x20");
}

TEST(Format, TextsAreQuotedAndShortened) {
  EXPECT_EQ(format_text("cuvmm_fill"), "\"cuvmm_fill\"");
  EXPECT_EQ(format_text(std::string(100, 'x').c_str()), "\"" + std::string(64, 'x') + "...\"");
  EXPECT_EQ(format_text(nullptr), "null");
}

TEST(Format, AttributesAndResultsByName) {
  EXPECT_EQ(format_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), "MULTICAST_SUPPORTED");
  EXPECT_EQ(format_attribute(static_cast<CUdevice_attribute>(9999)), "attribute 9999");
  EXPECT_EQ(format_result(CUDA_ERROR_NOT_READY), "CUDA_ERROR_NOT_READY");
  EXPECT_EQ(format_result(static_cast<CUresult>(9999)), "code 9999");
}

TEST(Format, ErrorsTellWhatWasGivenAndRecordingsAll) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp* const none = nullptr;
  EXPECT_EQ((format_given<EntryPoint::cuMemCreate>(&handle, size_t{2097152}, none, 0ULL)),
            "size = 2097152 (2 MiB), properties = null, flags = 0");
  CUmemGenericAllocationHandle* const nowhere = nullptr;
  EXPECT_EQ((format_given<EntryPoint::cuMemCreate>(nowhere, size_t{1}, none, 0ULL)),
            "handle = null, size = 1, properties = null, flags = 0")
      << "where the answer cannot go is a mistake, which is told";
  EXPECT_TRUE((format_arguments<EntryPoint::cuMemCreate>(&handle, size_t{1}, none, 0ULL)).starts_with("handle = 0x"));
}

TEST(Format, PlacesForAnswersAreKnownWhateverTheirType) {
  int descriptor = -1;
  void* const to_descriptor = &descriptor;
  EXPECT_EQ((format_given<EntryPoint::cuMemExportToShareableHandle>(to_descriptor, CUmemGenericAllocationHandle{16},
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL)),
            "handle = 0x10, handle_type = POSIX_FILE_DESCRIPTOR, flags = 0");
  CUipcMemHandle ipc{};
  EXPECT_EQ((format_given<EntryPoint::cuIpcGetMemHandle>(&ipc, CUdeviceptr{4096})), "pointer = 0x1000");
  size_t free = 0, total = 0;
  EXPECT_EQ((format_given<EntryPoint::cuMemGetInfo>(&free, &total)), "");
}

TEST(Format, WhatIsReadThroughAPointerIsGiven) {
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ((format_given<EntryPoint::cuMemGetDefaultMemPool>(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED)),
            "location = DEVICE 1, type = 1");
  void* const memory = &location;
  EXPECT_TRUE((format_given<EntryPoint::cuMemFreeHost>(memory)).starts_with("pointer = 0x"));
  EXPECT_TRUE(
      (format_given<EntryPoint::cuMemcpyDtoH>(memory, CUdeviceptr{4096}, size_t{1})).starts_with("destination = 0x"));
}

TEST(Format, EveryEntryPointHasANameForEachParameter) {
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  EXPECT_EQ(split_names(#arguments).size(), std::tuple_size_v<ParametersOf<EntryPoint::name>>) << #name;
#include "driver/entry_points.def"
}

}  // namespace
}  // namespace cuvmm::driver
