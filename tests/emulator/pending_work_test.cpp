// Unmapping memory that pending or running work uses.
#include <thread>

#include "emulated.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::emulator::test {
namespace {

Configuration stepped(Mode mode) {
  Configuration configuration = strict(2);
  configuration.mode = mode;
  configuration.scheduler = Scheduler::stepped;
  return configuration;
}

void expect_refused_unmap(Emulated& driver, CUdeviceptr address, const std::string& user) {
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *driver, cuMemUnmap(address, chunk));
  EXPECT_NE(driver->explanation().find("UNMAP-NOT-WHILE-IN-USE"), std::string::npos) << driver->explanation();
  EXPECT_NE(driver->explanation().find(user), std::string::npos) << driver->explanation();
}

// Submits one kind of work that uses the range, as source or target.
using Submit = CUresult (*)(Emulated&, CUdeviceptr range, CUdeviceptr other);
struct Work {
  const char* name;
  const char* described;
  Submit submit;
  CUresult fault = CUDA_ERROR_ILLEGAL_ADDRESS;  // what it ends in where its memory has gone
};
void PrintTo(const Work& work, std::ostream* stream) {
  *stream << work.name;
}
const Work works[] = {
    {"Memset", "memset",
     [](Emulated& driver, CUdeviceptr range, CUdeviceptr) { return driver->cuMemsetD8(range, 1, 4096); }},
    {"CopyTo", "copy",
     [](Emulated& driver, CUdeviceptr range, CUdeviceptr other) { return driver->cuMemcpyDtoD(range, other, 4096); }},
    {"CopyFrom", "copy",
     [](Emulated& driver, CUdeviceptr range, CUdeviceptr other) {
       return driver->cuMemcpyDtoD(other, range + 64, 4096);
     }},
    {"Kernel", "cuvmm_copy",
     [](Emulated& driver, CUdeviceptr range, CUdeviceptr other) {
       return driver.launch(driver.function("cuvmm_copy"), nullptr, other, range, std::uint64_t{4096});
     }},
    {"ValueWrite", "write of a value",
     [](Emulated& driver, CUdeviceptr range, CUdeviceptr) {
       return driver->cuStreamWriteValue32(nullptr, range, 1, 0);
     },
     CUDA_ERROR_LAUNCH_FAILED},
};

class PendingWork : public ::testing::TestWithParam<Work> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PendingWork, ::testing::ValuesIn(works),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(PendingWork, StopsUnmappingInStrictModeUntilItIsDone) {
  Emulated driver(stepped(Mode::strict));
  const CUdeviceptr range = driver.mapped(), other = driver.mapped(), unrelated = driver.mapped();
  EXPECT_EQ(GetParam().submit(driver, range, other), CUDA_SUCCESS);
  expect_refused_unmap(driver, range, GetParam().described);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(unrelated, chunk));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(range, chunk));
}

TEST_P(PendingWork, FailsAfterUnmappingInFaithfulModeWhichWarns) {
  Configuration configuration = stepped(Mode::faithful);
  std::string warned;
  configuration.on_warning = [&](const std::string& line) { warned += line; };
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped(), other = driver.mapped(), unrelated = driver.mapped();
  const CUcontext second = driver.use(1), first = driver.use(0);
  EXPECT_EQ(GetParam().submit(driver, range, other), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(unrelated, chunk));
  EXPECT_EQ(warned, "");
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(range, chunk));
  EXPECT_NE(warned.find("UNMAP-NOT-WHILE-IN-USE"), std::string::npos) << warned;
  EXPECT_NE(warned.find(GetParam().described), std::string::npos) << warned;
  EXPECT_EQ(driver->cuCtxSynchronize(), GetParam().fault);
  EXPECT_EQ(driver->cuCtxSynchronize(), GetParam().fault);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(second));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSetCurrent(first));
  EXPECT_EQ(driver->cuCtxSynchronize(), GetParam().fault);
}

TEST_P(PendingWork, FailsAfterItsRightsWereRevoked) {
  Emulated driver(stepped(Mode::strict));
  const CUdeviceptr range = driver.mapped(), other = driver.mapped();
  EXPECT_EQ(GetParam().submit(driver, range, other), CUDA_SUCCESS);
  EXPECT_EQ(driver.grant(range, chunk, grant_device(0, CU_MEM_ACCESS_FLAGS_PROT_NONE)), CUDA_SUCCESS);
  EXPECT_EQ(driver->cuCtxSynchronize(), GetParam().fault);
}

TEST(PendingWork, OfAnotherContextCountsToo) {
  Emulated driver(stepped(Mode::strict));
  const CUdeviceptr range = driver.mapped(chunk, on_device(0), grant_device(1));
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(range, 1, chunk));
  driver.use(0);
  expect_refused_unmap(driver, range, "memset");
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(range, chunk));
}

// A kernel that spins on a flag in `range`, running on a thread of the scheduler.
struct Spinning {
  explicit Spinning(Emulated& driver) : range(driver.mapped()) {
    EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT_EQ(driver.launch(driver.function("cuvmm_spin"), stream, range, ~std::uint64_t{0}), CUDA_SUCCESS);
  }
  CUdeviceptr range;
  CUstream stream = nullptr;
};

TEST(RunningKernel, StopsUnmappingInStrictModeUntilItIsDone) {
  Emulated driver;
  const Spinning kernel(driver);
  EXPECT_ANSWER(ERROR_NOT_READY, *driver, cuStreamQuery(kernel.stream));
  expect_refused_unmap(driver, kernel.range, "cuvmm_spin");
  const CUdeviceptr other = driver.mapped();
  driver.unmap_and_free(other);
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD32(kernel.range, 1, 1));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(kernel.stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(kernel.range, chunk));
}

TEST(RunningKernel, FailsAfterUnmappingInFaithfulMode) {
  Configuration configuration = strict(2);
  configuration.mode = Mode::faithful;
  Emulated driver(configuration);
  const Spinning kernel(driver);
  EXPECT_ANSWER(ERROR_NOT_READY, *driver, cuStreamQuery(kernel.stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(kernel.range, chunk));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamSynchronize(kernel.stream));
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuCtxSynchronize());
  driver.use(1);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(RunningKernel, GivesUpAfterItsPolls) {
  for (const Scheduler scheduler : {Scheduler::threaded, Scheduler::stepped}) {
    Configuration configuration = strict();
    configuration.scheduler = scheduler;
    Emulated driver(configuration);
    const CUdeviceptr flag = driver.mapped();
    EXPECT_EQ(driver.launch(driver.function("cuvmm_spin"), nullptr, flag, std::uint64_t{5}), CUDA_SUCCESS);
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  }
}

// A kernel that is inside its function, on memory that it holds a window on, while the memory is unmapped and released:
// it goes on harmlessly and then fails, as on a device.
TEST(RunningKernel, MayLoseItsMemoryInTheMiddle) {
  std::atomic<bool> inside{false}, go_on{false};
  HostKernel slow{"slow",
                  {sizeof(CUdeviceptr)},
                  [](const KernelArguments& arguments) {
                    return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), chunk, true}};
                  },
                  [&](const KernelCall& call) {
                    inside = true;
                    while (!go_on) std::this_thread::yield();
                    call.windows[0][chunk - 1] = std::byte{1};
                    return KernelProgress::done;
                  }};
  Configuration configuration = strict();
  configuration.mode = Mode::faithful;
  configuration.kernels = {slow};
  Emulated driver(configuration);
  const std::size_t free_before = driver.free_memory();
  const CUdeviceptr range = driver.mapped();
  CUstream stream = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(driver.launch(driver.function("slow"), stream, range), CUDA_SUCCESS);
  while (!inside) std::this_thread::yield();
  EXPECT_ANSWER(SUCCESS, *driver, cuMemUnmap(range, chunk));
  EXPECT_EQ(driver.free_memory(), free_before - chunk) << "the bytes are there while the kernel has them";
  go_on = true;
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *driver, cuStreamSynchronize(stream));
  EXPECT_ANSWER(SUCCESS, *driver, cuDevicePrimaryCtxReset(0));
  EXPECT_EQ(driver.free_memory_of(0), free_before);
}

}  // namespace
}  // namespace cuvmm::emulator::test
