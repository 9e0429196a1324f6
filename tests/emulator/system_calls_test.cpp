// Mapping, granting and unmapping device memory make no system call.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <vector>

#include "child.hpp"
#include "emulated.hpp"

namespace cuvmm::emulator::test {
namespace {

// From here on every system call but the one that ends the process ends it with SIGSYS. Nothing else needs to be
// allowed: memory comes from what the allocator kept when it was warmed up, locks are free, the clock is not asked.
bool forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int chunks = 64;

struct Range {
  Emulated driver;
  CUdeviceptr address = driver.reserve(chunks * chunk);
  std::vector<CUmemGenericAllocationHandle> handles;
  std::vector<CUmemAccessDesc> grants;

  Range(const CUmemAllocationProp& properties, std::vector<CUmemAccessDesc> granted)
      : driver(strict(2)), grants(std::move(granted)) {
    for (int index = 0; index < chunks; ++index) handles.push_back(driver.create(properties));
  }

  bool cycle() {
    for (std::size_t index = 0; index < handles.size(); ++index)
      if (driver->cuMemMap(address + index * chunk, chunk, 0, handles[index], 0) != CUDA_SUCCESS) return false;
    return driver->cuMemSetAccess(address, chunks * chunk, grants.data(), grants.size()) == CUDA_SUCCESS &&
           driver->cuMemUnmap(address, chunks * chunk) == CUDA_SUCCESS;
  }
};

// Warms up, then maps, grants and unmaps some thousands of chunks without a system call. The work that used the range
// before is done.
int work_without_system_calls(Range& range) {
  for (int round = 0; round < 10; ++round) CHILD_CHECK(range.cycle());
  if (!forbid_system_calls()) return 2;
  for (int round = 0; round < 100; ++round)
    if (!range.cycle()) return 3;
  return 0;
}

TEST(SystemCalls, AreNotMadeForDeviceMemory) {
  const auto work = [] {
    Range range(on_device(0), {grant_device(0), grant_device(1, CU_MEM_ACCESS_FLAGS_PROT_READ)});
    const int answer = work_without_system_calls(range);
    ::_exit(answer);  // the driver's end makes system calls
    return answer;
  };
#if defined(CUVMM_SANITIZED)
  std::puts("not tried under a sanitizer, whose allocator makes system calls of its own; the calls alone are");
  std::fflush(stdout);  // before the child copies what is buffered
  EXPECT_TRUE(succeeds_in_child([] {
    Range range(on_device(0), {grant_device(0)});
    CHILD_CHECK(range.cycle());
    return 0;
  }));
  (void)work;
#else
  const int status = status_in_child(work);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
#endif
}

#if !defined(CUVMM_SANITIZED)
// What shows that the test above can fail: memory that the host may touch must be mapped.
TEST(SystemCalls, AreMadeForMemoryOfTheHostAndNoticed) {
  EXPECT_TRUE(dies_in_child(SIGSYS, [] {
    Range range(on_host(CU_MEM_LOCATION_TYPE_HOST), {grant_host()});
    (void)work_without_system_calls(range);
  }));
}

TEST(SystemCalls, AreNoticedOneByOne) {
  EXPECT_TRUE(dies_in_child(SIGSYS, [] {
    if (forbid_system_calls()) (void)::getppid();
  }));
}
#endif

}  // namespace
}  // namespace cuvmm::emulator::test
