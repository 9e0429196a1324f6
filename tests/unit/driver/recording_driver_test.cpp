#include "driver/recording_driver.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cuvmm/error.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::FakeDriver;

class RecordingDriverTest : public testing::Test {
 protected:
  // The last line from its call on, without sequence, process and thread.
  [[nodiscard]] std::string last_call() const {
    const std::string& line = lines_.back();
    return line.substr(line.find(" cu") + 1);
  }

  std::vector<std::string> lines_;
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
  RecordingDriver driver_{fake_, [this](std::string_view line) { lines_.emplace_back(line); }};
};

TEST_F(RecordingDriverTest, WritesArgumentsResultAndWhatWasWritten) {
  fake_->on_cuMemAddressReserve = [](CUdeviceptr* pointer, size_t, size_t, CUdeviceptr, unsigned long long) {
    *pointer = 0x7000;
    return CUDA_SUCCESS;
  };
  CUdeviceptr pointer = 0;
  EXPECT_EQ(driver_.cuMemAddressReserve(&pointer, 2097152, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_NE(last_call().find("size = 2097152 (2 MiB), alignment = 0, address = 0x0, flags = 0) = CUDA_SUCCESS -> "
                             "pointer = 0x7000"),
            std::string::npos)
      << last_call();
}

TEST_F(RecordingDriverTest, OfAFailedCallNothingIsReadThatTheDriverMayNotHaveWritten) {
  fake_->answer(EntryPoint::cuDeviceGetCount, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(driver_.cuDeviceGetCount(nullptr), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(last_call(), "cuDeviceGetCount(count = null) = CUDA_ERROR_NOT_INITIALIZED");
}

TEST_F(RecordingDriverTest, NumbersCallsAndNamesTheThread) {
  driver_.cuCtxSynchronize();
  driver_.cuCtxSynchronize();
  std::thread([&] { driver_.cuCtxSynchronize(); }).join();
  ASSERT_EQ(lines_.size(), 3u);
  const std::string pid = " pid " + std::to_string(::getpid()) + " thread ";
  EXPECT_EQ(lines_[0].rfind("1" + pid, 0), 0u) << lines_[0];
  EXPECT_EQ(lines_[1].rfind("2" + pid, 0), 0u) << lines_[1];
  EXPECT_EQ(lines_[2].rfind("3" + pid, 0), 0u) << lines_[2];
  EXPECT_EQ(lines_[0].substr(1), lines_[1].substr(1));
  EXPECT_NE(lines_[1].substr(1), lines_[2].substr(1)) << "another thread has another number";
}

TEST_F(RecordingDriverTest, ShowsTextsDescriptorsAndAttributes) {
  fake_->on_cuDeviceGetName = [](char* name, int, CUdevice) {
    std::strcpy(name, "Fake GPU");
    return CUDA_SUCCESS;
  };
  char name[32] = {};
  driver_.cuDeviceGetName(name, sizeof name, 0);
  EXPECT_NE(last_call().find("-> name = \"Fake GPU\""), std::string::npos) << last_call();

  fake_->on_cuMemExportToShareableHandle = [](void* handle, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                              unsigned long long) {
    *static_cast<int*>(handle) = 17;
    return CUDA_SUCCESS;
  };
  int descriptor = -1;
  driver_.cuMemExportToShareableHandle(&descriptor, 0x10, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  EXPECT_NE(last_call().find("handle_type = POSIX_FILE_DESCRIPTOR, flags = 0) = CUDA_SUCCESS -> shareable_handle = "
                             "descriptor 17"),
            std::string::npos)
      << last_call();

  fake_->on_cuPointerGetAttribute = [](void* data, CUpointer_attribute, CUdeviceptr) {
    const unsigned long long start = 0x5000;
    std::memcpy(data, &start, sizeof start);
    return CUDA_SUCCESS;
  };
  unsigned long long start = 0;
  driver_.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 0x5001);
  EXPECT_NE(last_call().find("-> data = 0x5000"), std::string::npos) << last_call();
}

TEST_F(RecordingDriverTest, LeavesListsAlone) {
  int a = 1;
  void* parameters[] = {&a};
  EXPECT_EQ(driver_.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(last_call().find("->"), std::string::npos) << last_call();
}

TEST(AppendToFile, AppendsWholeLines) {
  const std::string path = testing::TempDir() + "cuvmm_recording_" + std::to_string(::getpid());
  {
    const LineSink first = append_to_file(path);
    first("one");
    first("two");
  }
  append_to_file(path)("three");
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::filesystem::remove(path);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "three"}));
}

TEST(AppendToFile, RefusesAFileThatCannotBeOpened) {
  try {
    static_cast<void>(append_to_file("/nowhere/at/all"));
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cuvmm::driver
