#include "driver/call.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "driver/advice.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::FakeDriver;

TEST(Call, PassesArgumentsAndAnswersNothingOnSuccess) {
  FakeDriver driver;
  driver.on_cuMemUnmap = [](CUdeviceptr pointer, size_t size) {
    return pointer == 0x1000 && size == 5 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_NO_THROW(call<EntryPoint::cuMemUnmap>(driver, 0x1000, 5));
  EXPECT_TRUE(try_call<EntryPoint::cuMemUnmap>(driver, 0x1000, 5));
  EXPECT_EQ(driver.calls.size(), 2u);
}

TEST(Call, NamesCallArgumentsRuleAndWayOut) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED);
  try {
    call<EntryPoint::cuMemMap>(driver, 0x7f0000200000, 2097152, 65536, 0x10, 0);
    FAIL() << "did not throw";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.code(), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(error.failure().code_name, "CUDA_ERROR_NOT_SUPPORTED");
    EXPECT_EQ(error.failure().arguments,
              "pointer = 0x7f0000200000, size = 2097152 (2 MiB), offset = 65536 (64 KiB), handle = 0x10, flags = 0");
    EXPECT_NE(error.rule().find("whole allocation"), std::string::npos) << error.what();
    EXPECT_NE(error.way_out().find("the size that it was created with"), std::string::npos) << error.what();
  }
}

TEST(Call, PrefersTheDriversExplanation) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemUnmap, CUDA_ERROR_INVALID_VALUE, "The range ends inside a mapping; unmap 4 MiB.");
  const Result<void> result = try_call<EntryPoint::cuMemUnmap>(driver, 0, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().rule, "The range ends inside a mapping; unmap 4 MiB.");
  EXPECT_EQ(result.failure().way_out, "");
}

TEST(Call, TellsTheLibrarysWayOutOfARuleThatTheDriverNames) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemMap, CUDA_ERROR_NOT_SUPPORTED,
                "MAP-WHOLE-ALLOCATION: a mapping covers a whole allocation.\nCreate it in other sizes.");
  const auto known = try_call<EntryPoint::cuMemMap>(driver, 0x1000, 1, 0, 1, 0);
  ASSERT_FALSE(known);
  EXPECT_EQ(known.failure().rule, "a mapping covers a whole allocation.");
  EXPECT_EQ(known.failure().way_out, way_out_for_rule("MAP-WHOLE-ALLOCATION"));
  driver.answer(EntryPoint::cuMemMap, CUDA_ERROR_INVALID_VALUE, "MAP-FREE-ADDRESSES: taken.\nUnmap first.");
  const auto other = try_call<EntryPoint::cuMemMap>(driver, 0x1000, 1, 0, 1, 0);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.failure().way_out, "Unmap first.") << "the driver's own says it as well";
}

TEST(Call, TakesNullPointersAsTheEntryPointDoes) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemCreate, CUDA_ERROR_INVALID_VALUE);
  const Result<void> result = try_call<EntryPoint::cuMemCreate>(driver, nullptr, 1, nullptr, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().arguments, "handle = null, size = 1, properties = null, flags = 0");
}

TEST(Call, DecodesPropertiesAndDescriptors) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemCreate, CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 1};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(9);
  properties.allocFlags.compressionType = 1;
  const auto created = try_call<EntryPoint::cuMemCreate>(driver, nullptr, 2097152, &properties, 0);
  ASSERT_FALSE(created);
  EXPECT_NE(created.failure().arguments.find("properties = {PINNED, location HOST_NUMA 1, handle types "
                                             "POSIX_FILE_DESCRIPTOR|FABRIC, compression 1, RDMA 0, usage 0}"),
            std::string::npos)
      << created.failure().arguments;

  driver.answer(EntryPoint::cuMemSetAccess, CUDA_ERROR_INVALID_VALUE);
  const std::vector<CUmemAccessDesc> descriptors(
      10, {{CU_MEM_LOCATION_TYPE_DEVICE, 3}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  const auto two = try_call<EntryPoint::cuMemSetAccess>(driver, 0x1000, 4096, descriptors.data(), 2);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.failure().arguments,
            "pointer = 0x1000, size = 4096 (4 KiB), descriptors = [DEVICE 3 READWRITE, DEVICE 3 READWRITE], count = 2");
  const auto ten = try_call<EntryPoint::cuMemSetAccess>(driver, 0x1000, 4096, descriptors.data(), 10);
  ASSERT_FALSE(ten);
  EXPECT_NE(ten.failure().arguments.find(", and 2 more]"), std::string::npos) << ten.failure().arguments;
}

TEST(Call, FormatsACallWithoutArguments) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuCtxSynchronize, CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto result = try_call<EntryPoint::cuCtxSynchronize>(driver);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().message().rfind("cuCtxSynchronize(): device lost (CUDA_ERROR_ILLEGAL_ADDRESS = 700).", 0),
            0u)
      << result.failure().message();
}

TEST(Call, NamesCodesThatOnlyTheDriverKnows) {
  FakeDriver driver;
  const auto newer = static_cast<CUresult>(12345);
  driver.answer(EntryPoint::cuMemRelease, newer);
  driver.on_cuGetErrorName = [](CUresult, const char** text) {
    *text = "CUDA_ERROR_FROM_THE_FUTURE";
    return CUDA_SUCCESS;
  };
  const auto result = try_call<EntryPoint::cuMemRelease>(driver, 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().code_name, "CUDA_ERROR_FROM_THE_FUTURE");
  EXPECT_EQ(result.failure().kind, ErrorKind::driver_failure);
}

TEST(Call, OutOfMemoryIsAskedWhatRanOut) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY);
  driver.answer(EntryPoint::cuMemAddressReserve, CUDA_ERROR_OUT_OF_MEMORY);
  driver.answer(EntryPoint::cuMulticastBindMem, CUDA_ERROR_OUT_OF_MEMORY);
  driver.answer(EntryPoint::cuMemHostAlloc, CUDA_ERROR_OUT_OF_MEMORY);
  CUmemAllocationProp on_device{};
  on_device.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAllocationProp on_host{};
  on_host.location.type = CU_MEM_LOCATION_TYPE_HOST;
  const auto create_on = [&](const CUmemAllocationProp& properties) {
    call<EntryPoint::cuMemCreate>(driver, nullptr, 4096, &properties, 0);
  };
  EXPECT_THROW(create_on(on_device), OutOfDeviceMemory);
  EXPECT_THROW(create_on(on_host), OutOfHostMemory);
  EXPECT_THROW(call<EntryPoint::cuMemAddressReserve>(driver, nullptr, 4096, 0, 0, 0), OutOfAddressSpace);
  EXPECT_THROW(call<EntryPoint::cuMulticastBindMem>(driver, 1, 0, 2, 0, 4096, 0), OutOfMulticastSlots);
  EXPECT_THROW(call<EntryPoint::cuMemHostAlloc>(driver, nullptr, 4096, 0), OutOfHostMemory);

  const auto result = try_call<EntryPoint::cuMemCreate>(driver, nullptr, 4096, &on_device, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().asked_bytes, 4096u);
}

TEST(Call, NotPermittedIsNeverMemory) {
  FakeDriver driver;
  driver.answer(EntryPoint::cuMemCreate, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_THROW(call<EntryPoint::cuMemCreate>(driver, nullptr, 4096, nullptr, 0), NotPermitted);
}

// Takes away every descriptor that the process could still open, for as long as it lives.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(next);  // the lowest free one is already too high
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

TEST(Call, LackOfDescriptorsIsRecognisedAndNeverMemory) {
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN}) {
    FakeDriver driver;
    driver.answer(EntryPoint::cuMemExportToShareableHandle, code);
    driver.answer(EntryPoint::cuMemCreate, code);
    const auto export_it = [&] {
      return try_call<EntryPoint::cuMemExportToShareableHandle>(driver, nullptr, 1,
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
          .failure()
          .kind;
    };
    {
      const NoDescriptorsLeft none;
      EXPECT_EQ(export_it(), ErrorKind::out_of_descriptors) << code;
      const ErrorKind created = try_call<EntryPoint::cuMemCreate>(driver, nullptr, 1, nullptr, 0).failure().kind;
      EXPECT_EQ(created == ErrorKind::out_of_descriptors, code == CUDA_ERROR_OPERATING_SYSTEM)
          << "creating memory opens no descriptor, unless the operating system is to blame: " << code;
    }
    EXPECT_EQ(export_it(), ErrorKind::driver_failure) << code;
  }
}

}  // namespace
}  // namespace cuvmm::driver
