// Modules, functions and launches.
#include <array>
#include <cstring>
#include <stdexcept>

#include "emulated.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::emulator::test {
namespace {

CUresult load(Emulated& driver, const void* image, CUmodule* module) {
  return driver->cuModuleLoadData(module, image);
}

// An uncompressed fatbin around that text, as nvcc lays it out; the part before the text stands for machine code.
std::vector<char> fatbin_of(const std::string& text) {
  struct {
    std::uint32_t magic = 0xBA55ED50;
    std::uint16_t version = 1, header_bytes = 16;
    std::uint64_t content_bytes = 0;
  } header;
  const std::string content = std::string(5, '\0') + "machine code" + std::string(3, '\0') + text;
  header.content_bytes = content.size();
  std::vector<char> image(sizeof header + content.size());
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, content.data(), content.size());
  return image;
}

void expect_function(Emulated& driver, CUmodule module, const char* name, CUresult answer) {
  CUfunction function = nullptr;
  EXPECT_EQ(driver->cuModuleGetFunction(&function, module, name), answer) << name << ": " << driver->explanation();
}

TEST(Modules, AreLoadedFromTheProjectsImage) {
  Emulated driver;
  CUmodule module = nullptr;
  ASSERT_EQ(load(driver, gpu::kernel_image().data(), &module), CUDA_SUCCESS) << driver->explanation();
  for (const std::string_view name : gpu::kernel_names)
    expect_function(driver, module, std::string(name).c_str(), CUDA_SUCCESS);
  expect_function(driver, module, "cuvmm_nothing", CUDA_ERROR_NOT_FOUND);
}

TEST(Modules, AreLoadedFromTextFatbinsAndTheirWrappers) {
  Emulated driver;
  const std::string text =
      ".version 8.0\n.target sm_90\n.visible .entry cuvmm_fill(\n.param .u64 a) {}\n.entry\tother{}\n";
  const std::vector<char> fatbin = fatbin_of(text);
  const struct {
    std::uint32_t magic = 0x466243B1, version = 1;
    const void* fatbin = nullptr;
    const void* unused = nullptr;
  } wrapper{0x466243B1, 1, fatbin.data(), nullptr};
  for (const void* image : {static_cast<const void*>(text.c_str()), static_cast<const void*>(fatbin.data()),
                            static_cast<const void*>(&wrapper)}) {
    CUmodule module = nullptr;
    ASSERT_EQ(load(driver, image, &module), CUDA_SUCCESS) << driver->explanation();
    expect_function(driver, module, "cuvmm_fill", CUDA_SUCCESS);
    expect_function(driver, module, "cuvmm_copy", CUDA_ERROR_NOT_FOUND);
    expect_function(driver, module, "other", CUDA_ERROR_NOT_SUPPORTED);
    expect_function(driver, module, "", CUDA_ERROR_INVALID_VALUE);
    EXPECT_ANSWER(SUCCESS, *driver, cuModuleUnload(module));
    EXPECT_ANSWER(ERROR_INVALID_HANDLE, *driver, cuModuleUnload(module));
    expect_function(driver, module, "cuvmm_fill", CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST(Modules, AreNotLoadedFromGarbage) {
  Emulated driver;
  CUmodule module = nullptr;
  for (const char* garbage : {"", "x",
                              "\x7f"
                              "ELF\x02\x01\x01",
                              "Lorem ipsum dolor sit amet"})
    EXPECT_EQ(load(driver, garbage, &module), CUDA_ERROR_INVALID_IMAGE) << garbage;
  EXPECT_EQ(load(driver, nullptr, &module), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(load(driver, ".version 8.0", nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(load(driver, ".version 8.0", &module), CUDA_SUCCESS);
}

TEST(Modules, AreNotLoadedFromTextThatTheCompilerWouldRefuse) {
  Emulated driver;
  CUmodule module = nullptr;
  EXPECT_EQ(load(driver, ".version 7.0\n.target sm_70\n.entry broken( {\n", &module), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(driver, ".version 7.0\n.target sm_70\n.entry broken({)}\n", &module), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(driver, ".version 7.0\n.target sm_70\n.entry whole() { } // (\n", &module), CUDA_SUCCESS);
  EXPECT_EQ(load(driver, ".version 9.1\n.target sm_70\n", &module), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(load(driver, ".version 9.0\n.target sm_70\n", &module), CUDA_SUCCESS);
  EXPECT_EQ(load(driver, ".version 9.0\n.target sm_100\n", &module), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(driver, ".version 9.0\n.target sm_90a\n", &module), CUDA_SUCCESS);
}

TEST(Functions, AreLaunchedInTheirOwnContextAlone) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  const CUfunction fill = driver.function("cuvmm_fill");
  const auto launch = [&](CUstream stream) {
    return driver.launch(fill, stream, range, std::uint64_t{8}, std::uint64_t{5});
  };
  CUstream own = nullptr, foreign = nullptr;
  CUcontext other = nullptr;
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&own, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxCreate(&other, 0, 0));
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamCreate(&foreign, 0));
  EXPECT_EQ(launch(own), CUDA_ERROR_INVALID_HANDLE) << "another context is current";
  driver.use(0);
  EXPECT_EQ(launch(foreign), CUDA_ERROR_INVALID_HANDLE) << "another context's stream";
  EXPECT_EQ(launch(own), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuStreamSynchronize(own));
}

TEST(Functions, TakeTheirArgumentsFromOneBufferToo) {
  Emulated driver;
  const CUfunction fill = driver.function("cuvmm_fill");
  struct {
    CUdeviceptr address;
    std::uint64_t bytes, pattern;
  } arguments{driver.mapped(), 8, 5};
  std::size_t size = sizeof arguments;
  void* extra[] = {reinterpret_cast<void*>(1), &arguments, reinterpret_cast<void*>(2), &size, nullptr};
  void* parameters[] = {&arguments.address, &arguments.bytes, &arguments.pattern};
  const auto launch = [&](void** each, void** packed) {
    return driver->cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, each, packed);
  };
  EXPECT_EQ(launch(parameters, extra), CUDA_ERROR_INVALID_VALUE) << "both ways at once";
  size = sizeof arguments - 1;
  EXPECT_EQ(launch(nullptr, extra), CUDA_ERROR_INVALID_VALUE) << "too small a buffer";
  size = sizeof arguments;
  EXPECT_EQ(launch(nullptr, extra), CUDA_SUCCESS);
  EXPECT_EQ(driver.read(arguments.address, 1), (std::vector<unsigned char>{5}));
}

TEST(Functions, GoWithTheirModules) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  ASSERT_EQ(load(driver, ".version 8.0\n.entry cuvmm_fill()", &module), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuModuleGetFunction(&fill, module, "cuvmm_fill"));
  EXPECT_EQ(driver.launch(fill, nullptr, range, std::uint64_t{8}, std::uint64_t{5}), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuModuleUnload(module));
  EXPECT_EQ(driver.launch(fill, nullptr, range, std::uint64_t{8}, std::uint64_t{5}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

HostKernel add_one(std::vector<std::uint64_t>* seen = nullptr) {
  return {"add_one",
          {sizeof(CUdeviceptr), sizeof(int)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), sizeof(int), true, alignof(int)}};
          },
          [seen](const KernelCall& call) {
            *reinterpret_cast<int*>(call.windows[0]) +=
                call.arguments.get<int>(1) + static_cast<int>(call.shape.grid[1]);
            if (seen != nullptr) seen->push_back(call.tries);
            return seen != nullptr && call.tries < 3 ? KernelProgress::again : KernelProgress::done;
          }};
}

int read_int(Emulated& driver, CUdeviceptr address) {
  int value = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

TEST(HostKernels, AreRegisteredByTheConfiguration) {
  Configuration configuration = strict();
  configuration.kernels = {add_one()};
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped();
  CUdeviceptr address = range + chunk - sizeof(int);
  int amount = 41;
  void* parameters[] = {&address, &amount};
  const CUfunction kernel = driver.function("add_one");
  EXPECT_ANSWER(SUCCESS, *driver, cuLaunchKernel(kernel, 1, 2, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_EQ(read_int(driver, address), 43);
  HostKernel later = add_one();
  later.run = [](const KernelCall& call) {
    *reinterpret_cast<int*>(call.windows[0]) = -1;
    return KernelProgress::done;
  };
  configuration.kernels.push_back(later);
  Emulated other(configuration);
  const CUdeviceptr place = other.mapped();
  EXPECT_EQ(other.launch(other.function("add_one"), nullptr, place, 1), CUDA_SUCCESS);
  EXPECT_EQ(read_int(other, place), -1) << "of two of one name the later counts";
}

TEST(HostKernels, AreCalledAgainAndCounted) {
  std::vector<std::uint64_t> tries;
  Configuration configuration = strict();
  configuration.scheduler = Scheduler::stepped;
  configuration.kernels = {add_one(&tries)};
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped();
  const CUfunction kernel = driver.function("add_one");
  for (int launch = 0; launch < 2; ++launch) {
    tries.clear();
    EXPECT_EQ(driver.launch(kernel, nullptr, range, 0), CUDA_SUCCESS);
    EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
    EXPECT_EQ(tries, (std::vector<std::uint64_t>{0, 1, 2, 3})) << "each launch begins anew";
  }
}

TEST(Launches, CopyTheirArguments) {
  Configuration configuration = strict();
  configuration.scheduler = Scheduler::stepped;
  configuration.kernels = {add_one()};
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped();
  CUdeviceptr address = range;
  int amount = 6;
  void* parameters[] = {&address, &amount};
  const CUfunction kernel = driver.function("add_one");
  EXPECT_ANSWER(SUCCESS, *driver, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  address = 0;
  amount = 1000;
  parameters[0] = nullptr;
  EXPECT_EQ(read_int(driver, range), 7);
}

TEST(Launches, CheckShapeFunctionStreamAndArguments) {
  Configuration configuration = strict();
  configuration.kernels = {add_one()};
  Emulated driver(configuration);
  const CUfunction kernel = driver.function("add_one");
  CUdeviceptr address = driver.mapped();
  int amount = 1;
  void* good[] = {&address, &amount};
  void* lacking[] = {&address, nullptr};
  const auto launch = [&](CUfunction function, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                          unsigned shared, CUstream stream, void** parameters, void** extra) {
    return driver->cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream,
                                  parameters, extra);
  };
  const auto unknown = reinterpret_cast<CUstream>(std::uintptr_t{0x999});
  EXPECT_EQ(launch(nullptr, {1, 1, 1}, {1, 1, 1}, 0, nullptr, good, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(kernel, {0, 1, 1}, {1, 1, 1}, 0, nullptr, good, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 70000, 1}, {1, 1, 1}, 0, nullptr, good, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 0, 1}, 0, nullptr, good, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {64, 64, 1}, 0, nullptr, good, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 1, 1}, 1 << 20, nullptr, good, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 1, 1}, 0, unknown, good, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr, lacking, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr, good, good), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(kernel, {1, 1, 1}, {32, 32, 1}, 48 << 10, nullptr, good, nullptr), CUDA_SUCCESS);
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
}

TEST(Launches, FaultOnAddressesThatAreNotAligned) {
  for (const CUdeviceptr offset : {0, 2}) {
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    EXPECT_EQ(driver.launch(driver.function("cuvmm_scale_add"), nullptr, range + offset, range + 4096, 1.0F,
                            std::uint64_t{4}),
              CUDA_SUCCESS);
    EXPECT_EQ(driver->cuCtxSynchronize(), offset == 0 ? CUDA_SUCCESS : CUDA_ERROR_MISALIGNED_ADDRESS);
  }
}

TEST(Launches, FaultOnSizesThatWrapAround) {
  const auto run = [](const char* name, auto... arguments) {
    Emulated driver;
    const CUdeviceptr range = driver.mapped();
    EXPECT_EQ(driver.launch(driver.function(name), nullptr, range, arguments...), CUDA_SUCCESS);
    return driver->cuCtxSynchronize();
  };
  constexpr std::uint64_t huge = std::uint64_t{1} << 62;
  EXPECT_EQ(run("cuvmm_fill", ~std::uint64_t{0}, std::uint64_t{1}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run("cuvmm_scale_add", CUdeviceptr{0}, 1.0F, huge), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run("cuvmm_fill", chunk + 1, std::uint64_t{1}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run("cuvmm_fill", chunk, std::uint64_t{1}), CUDA_SUCCESS);
  EXPECT_EQ(run("cuvmm_fill", std::uint64_t{0}, std::uint64_t{1}), CUDA_SUCCESS);
}

TEST(HostKernels, ThatThrowFailAndDoNotEndTheProgram) {
  HostKernel broken = add_one();
  broken.run = [](const KernelCall&) -> KernelProgress { throw std::runtime_error("broken while running"); };
  HostKernel unreadable = add_one();
  unreadable.name = "unreadable";
  unreadable.views = [](const KernelArguments& arguments) {
    return std::vector<KernelView>{{arguments.get<CUdeviceptr>(1), 8, false}};  // argument 1 has 4 bytes
  };
  Configuration configuration = strict();
  configuration.kernels = {broken, unreadable};
  Emulated driver(configuration);
  const CUdeviceptr range = driver.mapped();
  EXPECT_EQ(driver.launch(driver.function("unreadable"), nullptr, range, 1), CUDA_ERROR_UNKNOWN);
  EXPECT_NE(driver->explanation().find("CALLBACK-THROWS"), std::string::npos) << driver->explanation();
  EXPECT_ANSWER(SUCCESS, *driver, cuCtxSynchronize());
  EXPECT_EQ(driver.launch(driver.function("add_one"), nullptr, range, 1), CUDA_SUCCESS);
  EXPECT_ANSWER(ERROR_LAUNCH_FAILED, *driver, cuCtxSynchronize());
  EXPECT_NE(driver->explanation().find("broken while running"), std::string::npos) << driver->explanation();
}

TEST(BuiltInKernels, WorkAcrossAllocations) {
  Emulated driver;
  const CUdeviceptr range = driver.reserve(3 * chunk);
  for (int index = 0; index < 3; ++index)
    driver.map(range + static_cast<CUdeviceptr>(index) * chunk, driver.create(on_device(0)));
  EXPECT_EQ(driver.grant(range, 3 * chunk, grant_device(0)), CUDA_SUCCESS);
  CUdeviceptr sums = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&sums, 16));
  EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(sums, 0, 16));
  const CUdeviceptr begin = range + chunk / 2;
  EXPECT_EQ(driver.launch(driver.function("cuvmm_fill"), nullptr, begin, 2 * chunk, std::uint64_t{0x0102030405060708}),
            CUDA_SUCCESS);
  EXPECT_EQ(driver.read(begin + chunk - 8, 10), (std::vector<unsigned char>{8, 7, 6, 5, 4, 3, 2, 1, 8, 7}));
  const CUfunction checksum = driver.function("cuvmm_checksum");
  EXPECT_EQ(driver.launch(checksum, nullptr, begin, 2 * chunk, std::uint64_t{0}, sums), CUDA_SUCCESS);
  // The same in two pieces adds up to the same.
  EXPECT_EQ(driver.launch(checksum, nullptr, begin, chunk, std::uint64_t{0}, sums + 8), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(checksum, nullptr, begin + chunk, chunk, chunk / 8, sums + 8), CUDA_SUCCESS);
  std::uint64_t both[2] = {};
  EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoH(both, sums, 16));
  EXPECT_NE(both[0], 0U);
  EXPECT_EQ(both[0], both[1]);
}

// A tile is read as often as its turn comes; what is told to stop reads nothing more.
TEST(BuiltInKernels, ReadTileByTileUntilToldToStop) {
  Emulated driver;
  const CUdeviceptr range = driver.mapped();
  CUdeviceptr state = 0;
  EXPECT_ANSWER(SUCCESS, *driver, cuMemAlloc(&state, 32));
  const CUfunction fill = driver.function("cuvmm_fill");
  EXPECT_EQ(driver.launch(fill, nullptr, range, std::uint64_t{64}, std::uint64_t{1}), CUDA_SUCCESS);
  EXPECT_EQ(driver.launch(fill, nullptr, range + 64, std::uint64_t{64}, std::uint64_t{1000}), CUDA_SUCCESS);
  const auto read = [&](std::uint64_t tiles, std::uint32_t stop) {
    EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD8(state, 0, 32));
    EXPECT_ANSWER(SUCCESS, *driver, cuMemsetD32(state + 16, stop, 1));
    EXPECT_EQ(driver.launch(driver.function("cuvmm_read"), nullptr, range, std::uint64_t{128}, std::uint64_t{64}, tiles,
                            state, state + 24),
              CUDA_SUCCESS);
    std::vector<std::uint64_t> found(4);
    EXPECT_ANSWER(SUCCESS, *driver, cuMemcpyDtoH(found.data(), state, 32));
    return found;
  };
  const auto three = read(3, 0);
  EXPECT_EQ(three[0], 3U);
  EXPECT_EQ(three[1], 8U * (1 + 1000 + 1));
  EXPECT_EQ(three[3], 3U) << "progress";
  EXPECT_EQ(read(200, 0)[1], 8U * 100 * 1001) << "more than one call of the host's function";
  EXPECT_EQ(read(~std::uint64_t{0}, 1)[1], 0U);
}

}  // namespace
}  // namespace cuvmm::emulator::test
