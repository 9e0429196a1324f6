#include "driver/loaded_driver.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cuvmm/error.hpp"
#include "driver/call.hpp"
#include "environment.hpp"

namespace cuvmm::driver {
namespace {

using test::EnvironmentVariable;

std::string library(const std::string& name) {
  return std::string(FAKE_LIBCUDA_FOLDER) + "/libfake_libcuda_" + name + ".so";
}

std::shared_ptr<Interface> load(const std::string& name) {
  return load_driver({.library = library(name)});
}

// What the fake library was asked for so far in this process.
int asked(const std::string& name, const char* what) {
  void* const handle = ::dlopen(library(name).c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return -1;
  const int answer = reinterpret_cast<int (*)()>(::dlsym(handle, what))();
  ::dlclose(handle);
  return answer;
}

// The message of the DriverUnavailable that loading throws.
std::string refusal(const std::string& path) {
  try {
    static_cast<void>(load_driver({.library = path}));
  } catch (const DriverUnavailable& error) {
    return error.what();
  }
  return "accepted";
}

void expect_parts(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

class LoadedDriverTest : public testing::Test {
 protected:
  EnvironmentVariable own_{"CUVMM_MULTICAST", nullptr};
  EnvironmentVariable nccl_{"NCCL_NVLS_ENABLE", nullptr};
  EnvironmentVariable torch_{"TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr};
  EnvironmentVariable nvshmem_{"NVSHMEM_DISABLE_NVLS", nullptr};
};

TEST_F(LoadedDriverTest, LoadsAndCallsADriver) {
  const auto driver = load("cuda_13_0");
  EXPECT_EQ(driver->description(), "CUDA driver 13.0 (" + library("cuda_13_0") + ")");
  EXPECT_FALSE(driver->emulated());
  EXPECT_EQ(driver->cuMemRelease(42), CUDA_SUCCESS);
  EXPECT_EQ(driver->cuMemRelease(41), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver->explanation(), "");
}

TEST_F(LoadedDriverTest, AMissingLibraryIsNamedWithTheWayOut) {
  expect_parts(refusal(library("that_is_not_there")), {"libfake_libcuda_that_is_not_there.so", "cannot be loaded",
                                                       "Install the NVIDIA driver", "CUVMM_DRIVER=emulated"});
  EXPECT_EQ(refusal(library("cuda_13_0")), "accepted");
}

TEST_F(LoadedDriverTest, ALibraryWithoutCuGetProcAddressIsTooOld) {
  expect_parts(refusal(library("cuda_11_2")), {"too old", "no cuGetProcAddress", "CUDA 11.3 or later"});
  EXPECT_EQ(refusal(library("cuda_11_4")), "accepted");
}

TEST_F(LoadedDriverTest, UnderstandsTheFirstFormOfCuGetProcAddress) {
  const auto driver = load("cuda_11_4");
  EXPECT_EQ(driver->cuMemRelease(42), CUDA_SUCCESS);
  EXPECT_FALSE(driver->has(EntryPoint::cuMemMap)) << "this library has none";
}

TEST_F(LoadedDriverTest, NoDeviceIsSaidSo) {
  expect_parts(refusal(library("no_device")), {"shows no device", "CUDA_VISIBLE_DEVICES", "CUDA_ERROR_NO_DEVICE"});
  expect_parts(refusal(library("zero_devices")), {"shows no device", "CUDA_VISIBLE_DEVICES"});
}

TEST_F(LoadedDriverTest, LeavesInitialisationToACallerThatAsksForIt) {
  const auto driver = load_driver({.library = library("no_device"), .initialise = false});
  EXPECT_EQ(driver->cuInit(0), CUDA_ERROR_NO_DEVICE) << "the caller finds out by itself";
  const auto whole = load_driver({.library = library("cuda_13_0"), .initialise = false});
  EXPECT_EQ(whole->cuInit(0), CUDA_SUCCESS);
}

TEST_F(LoadedDriverTest, TheToolkitsStubIsRecognised) {
  expect_parts(refusal(library("stub")), {"stub", "LD_LIBRARY_PATH"});
}

TEST_F(LoadedDriverTest, AnEntryPointThatTheDriverIsTooOldForIsMissing) {
  constexpr auto entry = EntryPoint::cuMemGetHandleForAddressRange;
  const auto old = load("cuda_11_4");
  EXPECT_FALSE(old->has(entry));
  const auto result = try_call<entry>(*old, nullptr, 0, 0, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(result.failure().code, CUDA_ERROR_NOT_SUPPORTED);
  expect_parts(result.failure().rule,
               {"cuMemGetHandleForAddressRange needs a driver for CUDA 11.7", "CUDA 11.4", "update"});
  EXPECT_EQ(old->cuMemRelease(42), CUDA_SUCCESS);
  EXPECT_EQ(old->explanation(), "") << "the last call succeeded";

  const auto mended = load("cuda_12_0");
  int descriptor = -1;
  EXPECT_TRUE(mended->has(entry));
  EXPECT_EQ(mended->cuMemGetHandleForAddressRange(&descriptor, 0, 0, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(descriptor, 5);
}

TEST_F(LoadedDriverTest, AnEntryPointThatShouldBeThereButIsNotIsMissing) {
  const auto driver = load("lacks_release");
  EXPECT_FALSE(driver->has(EntryPoint::cuMemRelease));
  EXPECT_EQ(driver->cuMemRelease(42), CUDA_ERROR_NOT_SUPPORTED);
  expect_parts(driver->explanation(), {"has no cuMemRelease", "check the installation"});
  EXPECT_TRUE(load("cuda_13_0")->has(EntryPoint::cuMemRelease));
}

TEST_F(LoadedDriverTest, ALibraryThatCannotEvenInitialiseIsUnavailable) {
  expect_parts(refusal(library("lacks_init")), {"has no cuInit"});
}

TEST_F(LoadedDriverTest, NeverAsksForMoreThanTheDriversVersion) {
  static_cast<void>(load("cuda_12_0"));
  EXPECT_GT(asked("cuda_12_0", "fake_highest_version_asked"), 11000);
  EXPECT_LE(asked("cuda_12_0", "fake_highest_version_asked"), 12000);
}

TEST_F(LoadedDriverTest, AsksANewerDriverForTheFormsOfTheList) {
  const auto driver = load("cuda_14_0");
  size_t bytes = 0;
  EXPECT_EQ(driver->cuDeviceTotalMem(&bytes, 0), CUDA_SUCCESS) << "the form of CUDA 3.2";
  int highest = 0;
  for (const EntryPointInfo& entry : entry_points)
    if (entry.group != EntryPointGroup::multicast) highest = std::max(highest, entry.version);
  EXPECT_GE(asked("cuda_14_0", "fake_highest_version_asked"), highest);
  EXPECT_LT(asked("cuda_14_0", "fake_highest_version_asked"), 14000);
}

#if CUVMM_RESOLVE_MULTICAST

TEST_F(LoadedDriverTest, ItsOwnSwitchAndThoseOfOtherLibrariesTurnMulticastOff) {
  const std::pair<const char*, const char*> switches[] = {{"CUVMM_MULTICAST", "0"},
                                                          {"CUVMM_MULTICAST", "off"},
                                                          {"NCCL_NVLS_ENABLE", "0"},
                                                          {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
                                                          {"NVSHMEM_DISABLE_NVLS", "1"}};
  for (const auto& [name, off] : switches) {
    const EnvironmentVariable variable(name, off);
    const auto driver = load("switched_off");
    EXPECT_FALSE(driver->has(EntryPoint::cuMulticastCreate)) << name;
    EXPECT_EQ(driver->cuMulticastCreate(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    expect_parts(driver->explanation(), {name, "cuMulticastCreate was not looked up"});
  }
  EXPECT_EQ(asked("switched_off", "fake_multicast_asked"), 0);
  EXPECT_TRUE(load("switched_off")->has(EntryPoint::cuMulticastCreate)) << "without the switches";
}

// One name, two forms: the newer one is there beside the older one where the driver has it.
TEST_F(LoadedDriverTest, FindsTheFormsOfABindByTheirVersions) {
  const auto older = load("cuda_13_0");
  EXPECT_TRUE(older->has(EntryPoint::cuMulticastBindMem));
  EXPECT_FALSE(older->has(EntryPoint::cuMulticastBindMem_v2));
  EXPECT_EQ(older->cuMulticastBindMem_v2(1, 5, 0, 2, 0, 4096, 0), CUDA_ERROR_NOT_SUPPORTED);
  const auto newer = load("cuda_14_0");
  ASSERT_TRUE(newer->has(EntryPoint::cuMulticastBindMem_v2));
  EXPECT_EQ(newer->cuMulticastBindMem(1, 0, 2, 0, 4096, 0), CUDA_ERROR_ILLEGAL_STATE) << "the form of CUDA 12.1";
  EXPECT_EQ(newer->cuMulticastBindMem_v2(1, 5, 0, 2, 0, 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(newer->cuMulticastBindMem_v2(1, 4, 0, 2, 0, 4096, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(LoadedDriverTest, SwitchesThatSayOnLeaveMulticastOn) {
  const EnvironmentVariable own("CUVMM_MULTICAST", "1");
  const EnvironmentVariable nccl("NCCL_NVLS_ENABLE", "1");
  const EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", "0");
  const EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", "0");
  EXPECT_TRUE(load("cuda_13_0")->has(EntryPoint::cuMulticastCreate));
}

TEST_F(LoadedDriverTest, ItsOwnSwitchDoesNotTurnOnWhatAnotherTurnsOff) {
  const EnvironmentVariable own("CUVMM_MULTICAST", "1");
  const EnvironmentVariable nccl("NCCL_NVLS_ENABLE", "0");
  const auto driver = load("switched_off");
  EXPECT_FALSE(driver->has(EntryPoint::cuMulticastCreate));
  EXPECT_EQ(driver->cuMulticastCreate(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  expect_parts(driver->explanation(), {"NCCL_NVLS_ENABLE=0"});
}

#else

TEST_F(LoadedDriverTest, ABuildWithoutMulticastNeverAsksForIt) {
  const auto driver = load("switched_off");
  EXPECT_FALSE(driver->has(EntryPoint::cuMulticastCreate));
  EXPECT_EQ(driver->cuMulticastCreate(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  expect_parts(driver->explanation(), {"CUVMM_RESOLVE_MULTICAST=OFF", "cuMulticastCreate was not looked up"});
  EXPECT_EQ(asked("switched_off", "fake_multicast_asked"), 0);
  EXPECT_TRUE(driver->has(EntryPoint::cuMemRelease));
}

#endif

}  // namespace
}  // namespace cuvmm::driver
