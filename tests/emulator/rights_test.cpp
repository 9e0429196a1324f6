// What each device may do with a range, for copies, memsets and kernels.
#include "emulated.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::emulator::test {
namespace {

constexpr auto none = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto read = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto read_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

struct Uses {
  bool reads, sets, writes;
  friend bool operator==(const Uses&, const Uses&) = default;
};

// What copies and memsets of a device may do there.
Uses uses_of(Emulated& driver, int device, CUdeviceptr address) {
  driver.use(device);
  unsigned char byte = 0;
  const Uses uses{driver->cuMemcpyDtoH(&byte, address, 1) == CUDA_SUCCESS,
                  driver->cuMemsetD8(address, 1, 1) == CUDA_SUCCESS,
                  driver->cuMemcpyHtoD(address, &byte, 1) == CUDA_SUCCESS};
  driver.use(0);
  return uses;
}

// Whether a kernel of a device can fill there. If it cannot, the device is of no more use to the driver.
bool kernel_writes(Emulated& driver, int device, CUdeviceptr address) {
  driver.use(device);
  const CUfunction fill = driver.function("cuvmm_fill");
  EXPECT_EQ(driver.launch(fill, nullptr, address, std::uint64_t{16}, std::uint64_t{3}), CUDA_SUCCESS);
  const CUresult result = driver->cuCtxSynchronize();
  EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_ADDRESS) << result;
  driver.use(0);
  return result == CUDA_SUCCESS;
}

TEST(Rights, AreEachDevicesOwn) {
  Emulated driver(strict(2));
  const CUdeviceptr address = driver.mapped(chunk, on_device(0), grant_device(0));
  EXPECT_EQ(uses_of(driver, 0, address), (Uses{true, true, true}));
  EXPECT_EQ(uses_of(driver, 1, address), (Uses{false, false, false}));
  EXPECT_EQ(driver.grant(address, chunk, grant_device(1, read)), CUDA_SUCCESS);
  EXPECT_EQ(uses_of(driver, 1, address), (Uses{true, false, false}));
  EXPECT_EQ(uses_of(driver, 0, address), (Uses{true, true, true}));
  EXPECT_EQ(driver.grant(address, chunk, grant_device(0, none)), CUDA_SUCCESS);
  EXPECT_EQ(uses_of(driver, 0, address), (Uses{false, false, false})) << "revoked from the memory's own device";
  EXPECT_EQ(driver.grant(address, chunk, grant_device(1, read_write)), CUDA_SUCCESS);
  EXPECT_EQ(uses_of(driver, 1, address), (Uses{true, true, true}));
}

TEST(Rights, HoldForKernels) {
  for (const CUmemAccess_flags too_little : {none, read}) {
    Emulated driver(strict(2));
    const CUdeviceptr address = driver.mapped(chunk, on_device(0), grant_device(0));
    EXPECT_EQ(driver.grant(address, chunk, grant_device(1, too_little)), CUDA_SUCCESS);
    EXPECT_FALSE(kernel_writes(driver, 1, address)) << too_little;
    EXPECT_TRUE(kernel_writes(driver, 0, address)) << "the other device is whole";
  }
  Emulated driver(strict(2));
  const CUdeviceptr address = driver.mapped(chunk, on_device(0), grant_device(0));
  EXPECT_EQ(driver.grant(address, chunk, grant_device(1, read_write)), CUDA_SUCCESS);
  EXPECT_TRUE(kernel_writes(driver, 1, address));
  EXPECT_EQ(driver.read(address, 8), (std::vector<unsigned char>{3, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Rights, OfAReadOnlyRangeLetKernelsRead) {
  Emulated driver;
  const CUdeviceptr source = driver.mapped(), target = driver.mapped();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(source, 6, 64));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_EQ(driver.grant(source, chunk, grant_device(0, read)), CUDA_SUCCESS);
  const CUfunction copy = driver.function("cuvmm_copy");
  EXPECT_EQ(driver.launch(copy, nullptr, target, source, std::uint64_t{64}), CUDA_SUCCESS);
  EXPECT_EQ(driver.read(target, 64), std::vector<unsigned char>(64, 6));
  EXPECT_EQ(driver.launch(copy, nullptr, source, target, std::uint64_t{64}), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxSynchronize());
}

TEST(Rights, OfACopyAreThoseOfItsContextsDevice) {
  Emulated driver(strict(2));
  const CUdeviceptr mine = driver.mapped(chunk, on_device(0), grant_device(0));
  const CUdeviceptr theirs = driver.mapped(chunk, on_device(1), grant_device(1));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoD(mine, theirs, 64));
  EXPECT_EQ(driver.grant(theirs, chunk, grant_device(0, read)), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoD(mine, theirs, 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyDtoD(theirs, mine, 64));
  // A copy between contexts has each side's own rights.
  const CUcontext second = driver.use(1), first = driver.use(0);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyPeer(theirs, second, mine, first, 64));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemcpyPeer(theirs, first, mine, first, 64));
}

// Calls that the real driver accepts and that do nothing: faithful mode warns of them once.
TEST(Rights, OfCopiesAndMemsetsThatWrapAroundAreRefusedStrictlyAndIgnoredFaithfully) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    std::vector<std::string> warnings;
    Configuration configuration = strict();
    configuration.mode = mode;
    configuration.on_warning = [&](const std::string& line) { warnings.push_back(line); };
    Emulated driver(configuration);
    const CUdeviceptr range = driver.mapped();
    const CUresult expected = mode == Mode::strict ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    driver.write(range, {1, 2, 3, 4});
    EXPECT_EQ(driver->cuMemcpyDtoD(range + 8, range, ~std::size_t{0}), expected);
    if (mode == Mode::strict) {
      EXPECT_NE(driver->explanation().find("RANGE-FITS"), std::string::npos);
    }
    EXPECT_EQ(driver->cuMemsetD32(range, 7, (~std::size_t{0} >> 2) + 2), expected);
    EXPECT_EQ(driver->cuMemsetD8(range, 7, ~std::size_t{0}), expected);
    EXPECT_EQ(driver.read(range, 9), (std::vector<unsigned char>{1, 2, 3, 4, 0, 0, 0, 0, 0}));
    EXPECT_EQ(warnings.size(), mode == Mode::strict ? 0U : 1U);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoD(range + 8, range, 4));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD32(range, 7, 1));
    EXPECT_EQ(driver.read(range, 9), (std::vector<unsigned char>{7, 0, 0, 0, 0, 0, 0, 0, 1}));
  }
}

TEST(Rights, ToWriteAreNeededByWrittenValues) {
  for (const Mode mode : {Mode::strict, Mode::faithful}) {
    std::vector<std::string> warnings;
    Configuration configuration = strict();
    configuration.mode = mode;
    configuration.on_warning = [&](const std::string& line) { warnings.push_back(line); };
    Emulated driver(configuration);
    const CUdeviceptr range = driver.mapped();
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamWriteValue32(nullptr, range, 7, 0));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, range, 7, 1));
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
    EXPECT_EQ(driver.grant(range, chunk, grant_device(0, read)), CUDA_SUCCESS);
    if (mode == Mode::strict) {
      EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuStreamWriteValue32(nullptr, range, 8, 0));
      EXPECT_NE(driver->explanation().find("WRITE-VALUE-WRITABLE"), std::string::npos);
      EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
      EXPECT_EQ(driver.read(range, 1), (std::vector<unsigned char>{7}));
    } else {
      EXPECT_ANSWER(SUCCESS, *driver, cuStreamWriteValue32(nullptr, range, 8, 0));
      EXPECT_ANSWER(ERROR_LAUNCH_FAILED, *driver, cuCtxSynchronize());
      EXPECT_EQ(warnings.size(), 1U);
    }
  }
}

TEST(Rights, OfTheHostServeSynchronousCopies) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST_NUMA), grant_host());
  driver.write(range, {5});
  EXPECT_EQ(driver.read(range, 1), (std::vector<unsigned char>{5}));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemsetD8(range, 1, 1));
  EXPECT_EQ(driver.grant(range, chunk, grant_device(0)), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(range, 1, 1));
}

TEST(Rights, NeedDevicesThatReachEachOther) {
  Configuration configuration = strict(3);
  configuration.no_peer_access = {{0, 1}};
  Emulated driver(configuration);
  const CUdeviceptr address = driver.mapped();
  int reachable = -1;
  EXPECT_ANSWER(SUCCESS, *driver, cuDeviceCanAccessPeer(&reachable, 1, 0));
  EXPECT_EQ(reachable, 0);
  EXPECT_EQ(driver.grant(address, chunk, grant_device(1)), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(driver.grant(address, chunk, grant_device(2)), CUDA_SUCCESS);
  configuration.no_peer_access.clear();
  configuration.peer_access = false;
  Emulated apart(configuration);
  EXPECT_EQ(apart.grant(apart.mapped(), chunk, grant_device(2)), CUDA_ERROR_INVALID_DEVICE);
}

TEST(PeerAccess, IsNeededByKernelsForHeapMemoryOfAnotherDevice) {
  Emulated driver(strict(2));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 4096));
  EXPECT_TRUE(kernel_writes(driver, 0, memory));
  EXPECT_FALSE(kernel_writes(driver, 1, memory));
}

TEST(PeerAccess, IsBetweenDevicesAlone) {
  Emulated driver(strict(2));
  const CUcontext second = driver.use(1), first = driver.use(0);
  EXPECT_ANSWER(ERROR_PEER_ACCESS_UNSUPPORTED, *driver, cuCtxEnablePeerAccess(first, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxEnablePeerAccess(second, 0));
}

TEST(PeerAccess, OpensHeapMemoryToKernelsUntilItWasDisabledAsOftenAsEnabled) {
  Emulated driver(strict(2));
  CUdeviceptr memory = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&memory, 4096));
  const CUcontext first = driver.use(0);
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxEnablePeerAccess(first, 0));
  EXPECT_ANSWER(ERROR_PEER_ACCESS_ALREADY_ENABLED, *driver, cuCtxEnablePeerAccess(first, 0));
  EXPECT_TRUE(kernel_writes(driver, 1, memory));
  // A second context of the device enables it too, and ends: the first keeps its access.
  CUcontext created = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&created, 0, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxEnablePeerAccess(first, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDestroy(created));
  EXPECT_TRUE(kernel_writes(driver, 1, memory));
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxDisablePeerAccess(first));
  EXPECT_ANSWER(ERROR_PEER_ACCESS_NOT_ENABLED, *driver, cuCtxDisablePeerAccess(first));
  EXPECT_FALSE(kernel_writes(driver, 1, memory));
}

}  // namespace
}  // namespace cuvmm::emulator::test
