// An operating system that refuses: calls answer a code, nothing leaks, and the same call succeeds once it may.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <string>

#include "child.hpp"
#include "emulated.hpp"
#include "system_limits.hpp"

namespace cuvmm::emulator::test {
namespace {

bool explains(Emulated& driver, const char* part) {
  return driver->explanation().find(part) != std::string::npos;
}

TEST(OperatingSystem, WithoutRoomToMapBytesRefusesCopiesAndMemsets) {
  EXPECT_TRUE(succeeds_in_child([] {
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    const auto before = driver.live();
    unsigned char byte = 7;
    {
      // Enough for the process's own needs, too little to map a part of the device's memory.
      const Limit limit(RLIMIT_AS, address_space_in_use() + gibibyte / 4);
      CHILD_CHECK(driver->cuMemcpyHtoD(range, &byte, 1) == CUDA_ERROR_OPERATING_SYSTEM);
      CHILD_CHECK(explains(driver, "OPERATING-SYSTEM"));
      CHILD_CHECK(explains(driver, "mmap"));
      CHILD_CHECK(driver->cuMemsetD8(range, 1, 1) == CUDA_ERROR_OPERATING_SYSTEM);
      CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);  // nothing stays with the context
    }
    CHILD_CHECK(driver.live() == before);
    CHILD_CHECK(driver->cuMemcpyHtoD(range, &byte, 1) == CUDA_SUCCESS);
    CHILD_CHECK(driver.read(range, 1)[0] == 7);
    return 0;
  }));
}

TEST(OperatingSystem, WithoutDescriptorsRefusesTheFirstUseOfMemory) {
  if (address_sanitizer) {
    // UBSan asks by a pipe whether an exception's memory can be read, and takes a lack of descriptors for a no.
    std::puts("not tried with the address and undefined behaviour sanitizers, which need descriptors themselves");
    return;
  }
  EXPECT_TRUE(succeeds_in_child([] {
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    const CUdeviceptr host = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST));
    const auto before = driver.live();
    {
      const Limit limit(RLIMIT_NOFILE, descriptors_in_use());
      CHILD_CHECK(driver->cuMemsetD8(range, 1, 1) == CUDA_ERROR_OPERATING_SYSTEM);
      CHILD_CHECK(explains(driver, "memfd_create"));
      CHILD_CHECK(driver.grant(host, chunk, grant_host()) == CUDA_ERROR_OPERATING_SYSTEM);
      const CUmemLocation location{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
      unsigned long long flags = 99;
      CHILD_CHECK(driver->cuMemGetAccess(&flags, &location, host) == CUDA_SUCCESS && flags == 0);
    }
    CHILD_CHECK(driver.live() == before);
    CHILD_CHECK(driver->cuMemsetD8(range, 1, 1) == CUDA_SUCCESS);
    CHILD_CHECK(driver.grant(host, chunk, grant_host()) == CUDA_SUCCESS);
    *reinterpret_cast<volatile int*>(host) = 1;
    return 0;
  }));
}

TEST(OperatingSystem, WithoutDescriptorsRefusesExports) {
  EXPECT_TRUE(succeeds_in_child([] {
    Emulated driver;
    const auto handle = driver.create(on_device(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    const CUdeviceptr range = driver.mapped();
    const auto before = driver.live();
    int descriptor = -1;
    const auto exported = [&] {
      return driver->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    };
    {
      const Limit limit(RLIMIT_NOFILE, descriptors_in_use() + 1);  // an export takes two
      CHILD_CHECK(exported() == CUDA_ERROR_OPERATING_SYSTEM);
      CHILD_CHECK(explains(driver, "DESCRIPTOR-LIMIT"));
      CHILD_CHECK(explains(driver, "Too many open files"));
      CHILD_CHECK(driver->cuMemGetHandleForAddressRange(&descriptor, range, chunk, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                                        0) == CUDA_ERROR_OPERATING_SYSTEM);
      CHILD_CHECK(descriptor == -1);
    }
    CHILD_CHECK(driver.live() == before);
    CHILD_CHECK(exported() == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuMemRelease(handle) == CUDA_SUCCESS);
    ::close(descriptor);
    CHILD_CHECK(driver.live().allocations == before.allocations - 1);
    return 0;
  }));
}

// Without a handler for SIGXFSZ, which would end the process.
TEST(OperatingSystem, ThatLimitsFilesRefusesMoreBytes) {
  EXPECT_TRUE(succeeds_in_child([] {
    (void)std::signal(SIGXFSZ, SIG_DFL);
    Emulated driver;
    const CUdeviceptr small = driver.mapped(), large = driver.mapped(2 * gibibyte);
    const CUdeviceptr host = driver.mapped(chunk, on_host(CU_MEM_LOCATION_TYPE_HOST));
    const auto before = driver.live();
    {
      const Limit limit(RLIMIT_FSIZE, gibibyte / 2);  // less than the driver would take at once
      CHILD_CHECK(driver->cuMemsetD8(large, 1, 1) == CUDA_ERROR_OUT_OF_MEMORY);
      CHILD_CHECK(explains(driver, "OPERATING-SYSTEM"));
      CHILD_CHECK(explains(driver, "RLIMIT_FSIZE"));
      CHILD_CHECK(driver->cuMemsetD8(small, 1, chunk) == CUDA_SUCCESS);
      CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);
    }
    {
      const Limit limit(RLIMIT_FSIZE, 0);
      CHILD_CHECK(driver.grant(host, chunk, grant_host()) == CUDA_ERROR_OUT_OF_MEMORY);
      CHILD_CHECK(explains(driver, "RLIMIT_FSIZE"));
    }
    CHILD_CHECK(driver.live() == before);
    CHILD_CHECK(driver->cuMemsetD8(large, 1, 1) == CUDA_SUCCESS);
    CHILD_CHECK(driver.grant(host, chunk, grant_host()) == CUDA_SUCCESS);
    *reinterpret_cast<volatile int*>(host) = 1;
    CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);
    CHILD_CHECK(driver.read(small, 1)[0] == 1);
    driver.unmap_and_free(large, 2 * gibibyte);
    driver.unmap_and_free(small);
    CHILD_CHECK(driver.live().allocations == before.allocations - 2);
    return 0;
  }));
}

// From here on the process can make no thread, as under RLIMIT_NPROC, which root need not heed.
bool forbid_threads() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(OperatingSystem, WithoutThreadsLetsQueriesComeToAnEnd) {
  EXPECT_TRUE(succeeds_in_child([] {
    CHILD_CHECK(forbid_threads());
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CHILD_CHECK(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuEventCreate(&event, 0) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuMemsetD8Async(range, 1, chunk, stream) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuEventRecord(event, stream) == CUDA_SUCCESS);
    CUresult code = CUDA_ERROR_NOT_READY;
    while (code == CUDA_ERROR_NOT_READY) code = driver->cuEventQuery(event);
    CHILD_CHECK(code == CUDA_SUCCESS);
    // Waits for a value that another stream writes: what rests is tried again.
    CHILD_CHECK(driver->cuStreamWaitValue32(stream, range, 7, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
    for (int poll = 0; poll < 100; ++poll) CHILD_CHECK(driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    CHILD_CHECK(driver->cuStreamWriteValue32(nullptr, range, 7, 0) == CUDA_SUCCESS);
    code = CUDA_ERROR_NOT_READY;
    while (code == CUDA_ERROR_NOT_READY) code = driver->cuStreamQuery(stream);
    CHILD_CHECK(code == CUDA_SUCCESS);
    return 0;
  }));
}

TEST(OperatingSystem, WithoutThreadsLetsWaitsForOtherStreamsComeToAnEnd) {
  EXPECT_TRUE(succeeds_in_child([] {
    CHILD_CHECK(forbid_threads());
    Emulated driver;
    const CUdeviceptr flag = driver.mapped();
    CUstream streams[3] = {};
    CUevent event = nullptr;
    for (CUstream& stream : streams)
      CHILD_CHECK(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuEventCreate(&event, 0) == CUDA_SUCCESS);
    // The first stream waits for the second, which spins until the third writes.
    CHILD_CHECK(driver.launch(driver.function("cuvmm_spin"), streams[1], flag, ~std::uint64_t{0}) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuEventRecord(event, streams[1]) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuStreamWaitEvent(streams[0], event, 0) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuMemsetD32Async(flag, 1, 1, streams[2]) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuStreamSynchronize(streams[0]) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);
    CHILD_CHECK(driver.read(flag, 1)[0] == 1);
    return 0;
  }));
}

TEST(OperatingSystem, WithoutRoomForAWindowFailsTheKernelAndSaysWhy) {
  EXPECT_TRUE(succeeds_in_child([] {
    Emulated driver;
    const CUdeviceptr range = driver.mapped(2 * gibibyte);
    const CUfunction fill = driver.function("cuvmm_fill");
    CHILD_CHECK(driver->cuMemsetD8(range, 1, 1) == CUDA_SUCCESS);
    CHILD_CHECK(driver.launch(fill, nullptr, range, std::uint64_t{8}, std::uint64_t{1}) == CUDA_SUCCESS);
    CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_SUCCESS);
    {
      const Limit limit(RLIMIT_AS, address_space_in_use() + gibibyte / 4);
      const CUfunction checksum = driver.function("cuvmm_checksum");
      CHILD_CHECK(driver.launch(checksum, nullptr, range, gibibyte, std::uint64_t{0}, range + gibibyte) ==
                  CUDA_SUCCESS);
      CHILD_CHECK(driver->cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
      CHILD_CHECK(explains(driver, "window"));
    }
    CHILD_CHECK(driver->cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    const std::size_t free_before = driver.free_memory_of(0);
    driver.unmap_and_free(range, 2 * gibibyte);
    CHILD_CHECK(driver.free_memory_of(0) == free_before + 2 * gibibyte);
    return 0;
  }));
}

}  // namespace
}  // namespace cuvmm::emulator::test
