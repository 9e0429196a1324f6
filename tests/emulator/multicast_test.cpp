// Multicast objects through the driver's entry points.
#include "multicast.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace cuvmm::emulator {
namespace {

using namespace test;
using multimem::Form;
using multimem::Instruction;
using multimem::Type;

constexpr Form add_f32{Instruction::load_reduce, Type::f32};

// Writes four numbers to all devices' memory, whichever device runs it.
HostKernel storing(std::array<float, 4> values) {
  return body_at(16, [values](const KernelCall& call) {
    multimem::Accesses(call).store<Form{.type = Type::f32, .vector = 4}>(0, 0, values);
  });
}

std::vector<unsigned char> bytes_of(const std::array<float, 4>& values) {
  std::vector<unsigned char> bytes(sizeof values);
  std::copy_n(reinterpret_cast<const unsigned char*>(values.data()), bytes.size(), bytes.begin());
  return bytes;
}

CUresult run(Emulated& cuda, int device, CUdeviceptr address) {
  cuda.use(device);
  const CUresult launched = cuda.launch(cuda.function("body"), nullptr, address);
  return launched != CUDA_SUCCESS ? launched : cuda->cuCtxSynchronize();
}

TEST(Multicast, OneStoreReachesEveryDevice) {
  for (const int devices : {1, 2, 4, 8}) {
    Configuration configuration = with_multicast(devices);
    const std::array<float, 4> values{1, -2, 3.5F, 4e30F};
    configuration.kernels = {storing(values)};
    Team team(configuration);
    team.set_up();
    EXPECT_EQ(run(team.cuda, devices - 1, team.multicast), CUDA_SUCCESS);
    for (int device = 0; device < devices; ++device) {
      team.cuda.use(device);
      EXPECT_EQ(team.cuda.read(team.members[static_cast<std::size_t>(device)], 16), bytes_of(values)) << device;
    }
  }
}

TEST(Multicast, SeveralBuffersShareAnObjectAtTheirOffsets) {
  Configuration configuration = with_multicast(2);
  configuration.kernels = {body_at(2 * chunk, [](const KernelCall& call) {
    // At the end of the first buffer and the beginning of the second.
    multimem::Accesses(call).store<Form{.type = Type::u32}>(0, chunk - 4, std::array{7U});
    multimem::Accesses(call).store<Form{.type = Type::u32}>(0, chunk, std::array{9U});
  })};
  Team team(configuration, 2 * chunk);
  team.join_all();
  std::vector<CUdeviceptr> buffers;
  for (const std::uint64_t offset : {std::uint64_t{0}, chunk})
    for (int device = 0; device < 2; ++device) {
      buffers.push_back(team.cuda.mapped(chunk, on_device(device), grant_device(device)));
      ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindAddr(team.object, offset, buffers.back(), chunk, 0));
    }
  EXPECT_EQ(run(team.cuda, 0, team.map()), CUDA_SUCCESS);
  for (int device = 0; device < 2; ++device) {
    team.cuda.use(device);
    EXPECT_EQ(team.cuda.read(buffers[static_cast<std::size_t>(device)] + chunk - 4, 4)[0], 7);
    EXPECT_EQ(team.cuda.read(buffers[2 + static_cast<std::size_t>(device)], 4)[0], 9);
  }
}

// An address of a multicast object, and a call that touches it without multimem.
struct PlainAccess {
  const char* name;
  CUresult (*touch)(Emulated&, CUfunction body, CUdeviceptr address);
};

class PlainAccesses : public testing::TestWithParam<PlainAccess> {};

TEST_P(PlainAccesses, FaultAndTakeTheContextWithThem) {
  Configuration configuration = with_multicast(1);
  configuration.kernels = {body(
      {sizeof(std::uint64_t)},
      [](const KernelArguments& given) {
        return std::vector<KernelView>{{given.get<std::uint64_t>(0), 4, true}};
      },
      [](const KernelCall&) { return KernelProgress::done; })};
  Team team(configuration);
  team.set_up();
  CUfunction function = team.cuda.function("body");
  ASSERT_EQ(GetParam().touch(team.cuda, function, team.members[0]), CUDA_SUCCESS) << "the memory's own address";
  const CUresult touched = GetParam().touch(team.cuda, function, team.multicast);
  EXPECT_TRUE(touched == CUDA_SUCCESS || touched == CUDA_ERROR_ILLEGAL_ADDRESS) << touched;
  EXPECT_EQ(team.cuda->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(GetParam().touch(team.cuda, function, team.members[0]), CUDA_ERROR_ILLEGAL_ADDRESS) << "the error stays";
}

INSTANTIATE_TEST_SUITE_P(
    Multicast, PlainAccesses,
    testing::Values(PlainAccess{"CopyTo",
                                [](Emulated& cuda, CUfunction, CUdeviceptr address) {
                                  const unsigned char byte = 1;
                                  return cuda->cuMemcpyHtoD(address, &byte, 1);
                                }},
                    PlainAccess{"CopyFrom",
                                [](Emulated& cuda, CUfunction, CUdeviceptr address) {
                                  unsigned char byte = 1;
                                  return cuda->cuMemcpyDtoH(&byte, address, 1);
                                }},
                    PlainAccess{"Memset", [](Emulated& cuda, CUfunction,
                                             CUdeviceptr address) { return cuda->cuMemsetD8(address, 1, 64); }},
                    PlainAccess{"Kernel", [](Emulated& cuda, CUfunction body,
                                             CUdeviceptr address) { return cuda.launch(body, nullptr, address); }}),
    [](const auto& test) { return test.param.name; });

TEST(Multicast, MultimemFaultsAtAddressesThatAreNotMulticast) {
  Configuration configuration = with_multicast(1);
  configuration.kernels = {storing({})};
  Team team(configuration);
  team.set_up();
  EXPECT_EQ(run(team.cuda, 0, team.multicast), CUDA_SUCCESS);
  EXPECT_EQ(run(team.cuda, 0, team.members[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(Multicast, MultimemFaultsWhereADeviceHasNothingBound) {
  Configuration configuration = with_multicast(2);
  configuration.kernels = {storing({})};
  for (const bool all_bound : {true, false}) {
    Team team(configuration);
    team.join_all();
    (void)team.bind(0);
    if (all_bound) (void)team.bind(1);
    EXPECT_EQ(run(team.cuda, 0, team.map()), all_bound ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST(Multicast, MultimemFaultsWithoutTheRight) {
  Configuration configuration = with_multicast(2);
  configuration.kernels = {storing({})};
  for (const bool granted : {true, false}) {
    Team team(configuration);
    team.set_up();
    const CUmemAccess_flags flags = granted ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    ASSERT_EQ(team.cuda.grant(team.multicast, team.bytes, grant_device(1, flags)), CUDA_SUCCESS);
    EXPECT_EQ(run(team.cuda, 1, team.multicast), granted ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST(Multicast, AMisalignedMultimemFaults) {
  Configuration configuration = with_multicast(1);
  for (const std::uint64_t offset : {16, 8}) {
    configuration.kernels = {body_at(64, [offset](const KernelCall& call) {
      multimem::Accesses(call).store<Form{.type = Type::f32, .vector = 4}>(0, offset, std::array<float, 4>{});
    })};
    Team team(configuration);
    team.set_up();
    EXPECT_EQ(run(team.cuda, 0, team.multicast), offset == 16 ? CUDA_SUCCESS : CUDA_ERROR_MISALIGNED_ADDRESS);
  }
}

TEST(Multicast, AMultimemBeyondItsViewFaults) {
  Configuration configuration = with_multicast(1);
  for (const std::uint64_t offset : {48, 64}) {
    configuration.kernels = {body_at(64, [offset](const KernelCall& call) {
      multimem::Accesses(call).store<Form{.type = Type::f32, .vector = 4}>(0, offset, std::array<float, 4>{});
    })};
    Team team(configuration);
    team.set_up();
    EXPECT_EQ(run(team.cuda, 0, team.multicast), offset == 48 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

TEST(Multicast, UnbindingWhileAKernelRunsFaultsIt) {
  Configuration configuration = with_multicast(1, Mode::faithful);
  configuration.on_warning = [](const std::string&) {};
  static std::atomic<bool> begun, go_on;
  begun = go_on = false;
  configuration.kernels = {body_at(64, [](const KernelCall&) {
    begun = true;
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  })};
  Team team(configuration);
  team.set_up();
  CUstream stream = nullptr;
  ASSERT_ANSWER(SUCCESS, *team.cuda, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_EQ(team.cuda.launch(team.cuda.function("body"), stream, team.multicast), CUDA_SUCCESS);
  while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastUnbind(team.object, 0, 0, team.bytes));
  go_on = true;
  EXPECT_ANSWER(ERROR_ILLEGAL_ADDRESS, *team.cuda, cuStreamSynchronize(stream));
}

TEST(Multicast, ABindWaitsForTheLastDeviceAndHoldsNoLock) {
  Team team(with_multicast(2));
  const CUdeviceptr memory = team.cuda.mapped(chunk, on_device(0));
  ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(team.object, 0));
  std::atomic<bool> bound{false};
  std::thread rank([&] {
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindAddr(team.object, 0, memory, chunk, 0));
    bound = true;
  });
  // What another thread does meanwhile goes through, and the bind is still waiting then.
  for (int count = 0; count < 20; ++count) {
    team.cuda.unmap_and_free(team.cuda.mapped());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(bound);
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(team.object, 1));
  rank.join();
  EXPECT_TRUE(bound);
}

TEST(Multicast, AMapWaitsForTheLastDevice) {
  Team team(with_multicast(2));
  const CUdeviceptr address = team.cuda.reserve();
  ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(team.object, 0));
  std::atomic<bool> mapped{false};
  std::thread rank([&] {
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
    mapped = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(mapped);
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(team.object, 1));
  rank.join();
}

TEST(Multicast, AWaitEndsWithItsLimit) {
  Configuration configuration = with_multicast(2);
  configuration.multicast_wait = 30;
  Team team(configuration);
  const CUdeviceptr memory = team.cuda.mapped(chunk, on_device(0));
  const CUdeviceptr address = team.cuda.reserve();
  std::atomic<bool> stop{false};
  std::thread another([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_ANSWER(ERROR_TIMEOUT, *team.cuda, cuMulticastBindAddr(team.object, 0, memory, chunk, 0));
  EXPECT_NE(team.cuda->explanation().find("30 ms of multicast-wait"), std::string::npos) << team.cuda->explanation();
  EXPECT_ANSWER(ERROR_TIMEOUT, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
  stop = true;
  another.join();
  team.join_all();
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindAddr(team.object, 0, memory, chunk, 0));
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
}

// The limit is far away; nobody waits for it. (The thread sanitizer has a thread of its own, which might add a device.)
TEST(Multicast, AWaitThatNobodyCouldEndIsRefusedAtOnce) {
  Configuration configuration = with_multicast(2);
  if (thread_sanitizer) configuration.multicast_wait = 100;
  Team team(configuration);
  const CUdeviceptr memory = team.cuda.mapped(chunk, on_device(0));
  const CUdeviceptr address = team.cuda.reserve();
  EXPECT_ANSWER(ERROR_TIMEOUT, *team.cuda, cuMulticastBindAddr(team.object, 0, memory, chunk, 0));
  EXPECT_NE(team.cuda->explanation().find("MULTICAST-TEAM-COMPLETE"), std::string::npos);
  EXPECT_ANSWER(ERROR_TIMEOUT, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
  team.join_all();
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindAddr(team.object, 0, memory, chunk, 0));
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
}

TEST(Multicast, ATeamThatNeedsMoreDevicesThanThereAreIsRefusedAtOnce) {
  Emulated cuda(with_multicast(2));
  CUmemGenericAllocationHandle object = 0;
  const CUmulticastObjectProp properties = object_of(3);
  ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastCreate(&object, &properties));
  const CUdeviceptr memory = cuda.mapped(chunk, on_device(0));
  std::atomic<bool> stop{false};
  std::thread another([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_ANSWER(ERROR_TIMEOUT, *cuda, cuMulticastBindAddr(object, 0, memory, chunk, 0));
  EXPECT_NE(cuda->explanation().find("only 2 are in the object's reach"), std::string::npos) << cuda->explanation();
  stop = true;
  another.join();
}

TEST(Multicast, TheFormsOf13_1NameTheDevice) {
  Configuration configuration = with_multicast(2);
  for (const char* const profile : {"h200-multicast", "h200-590"}) {
    configuration.profile = *find_profile(profile);
    const bool has_forms = configuration.profile.driver_version >= 13010;
    Team team(configuration, 2 * chunk);
    team.join_all();
    EXPECT_EQ(team.cuda->has(driver::EntryPoint::cuMulticastBindMem_v2), has_forms);
    EXPECT_EQ(team.cuda->has(driver::EntryPoint::cuMulticastBindAddr_v2), has_forms);
    EXPECT_TRUE(team.cuda->has(driver::EntryPoint::cuMulticastBindMem));
    const CUmemGenericAllocationHandle memory = team.cuda.create(on_device(1));
    const CUdeviceptr address = team.cuda.mapped(chunk, on_device(1));
    const CUresult expected = has_forms ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    EXPECT_EQ(team.cuda->cuMulticastBindMem_v2(team.object, 1, 0, memory, 0, chunk, 0), expected);
    EXPECT_EQ(team.cuda->cuMulticastBindAddr_v2(team.object, 1, chunk, address, chunk, 0), expected);
    if (!has_forms) continue;
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastUnbind(team.object, 1, 0, chunk));
    EXPECT_ANSWER(ERROR_INVALID_DEVICE, *team.cuda, cuMulticastBindMem_v2(team.object, 0, 0, memory, 0, chunk, 0));
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastUnbind(team.object, 1, chunk, chunk));
    EXPECT_ANSWER(ERROR_INVALID_DEVICE, *team.cuda, cuMulticastBindAddr_v2(team.object, 0, chunk, address, chunk, 0));
  }
}

TEST(Multicast, SlotsRunOutAndComeBack) {
  Configuration configuration = with_multicast(1);
  configuration.multicast_slots = 3;
  Emulated cuda(configuration);
  const CUmemGenericAllocationHandle memory = cuda.create(on_device(0));
  std::vector<CUmemGenericAllocationHandle> objects(4);
  const CUmulticastObjectProp properties = object_of(1);
  const auto bind = [&](CUmemGenericAllocationHandle object) {
    return cuda->cuMulticastBindMem(object, 0, memory, 0, chunk, 0);
  };
  for (CUmemGenericAllocationHandle& object : objects) {
    ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastCreate(&object, &properties));
    ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastAddDevice(object, 0));
    EXPECT_EQ(bind(object), &object == &objects.back() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
  }
  EXPECT_ANSWER(SUCCESS, *cuda, cuMulticastUnbind(objects[0], 0, 0, chunk));
  EXPECT_EQ(bind(objects[3]), CUDA_SUCCESS);
}

// What a bind keeps, and that it all goes in the end.
TEST(Multicast, WhatIsBoundStaysUntilItIsUnboundOrTheObjectGoes) {
  Configuration configuration = with_multicast(1, Mode::faithful);
  configuration.on_warning = [](const std::string&) {};
  Team team(configuration);
  const std::size_t free = team.cuda.free_memory();
  team.join_all();
  for (const bool unbound : {true, false}) {
    const CUmemGenericAllocationHandle memory = team.cuda.create(on_device(0));
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindMem(team.object, 0, memory, 0, chunk, 0));
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemRelease(memory));
    EXPECT_EQ(team.cuda.free_memory(), free - chunk);
    if (unbound)
      ASSERT_ANSWER(SUCCESS, *team.cuda, cuMulticastUnbind(team.object, 0, 0, chunk));
    else
      ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemRelease(team.object));
    EXPECT_EQ(team.cuda.free_memory(), free);
  }
  EXPECT_EQ(team.cuda.live(), api::Machine::LiveObjects{});
}

TEST(Multicast, AThousandTeamsLeaveNothing) {
  Emulated cuda(with_multicast(2));
  const auto before = cuda.live();
  const std::size_t free = cuda.free_memory();
  const CUmulticastObjectProp properties = object_of(2);
  for (int count = 0; count < 1000; ++count) {
    CUmemGenericAllocationHandle object = 0;
    ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastCreate(&object, &properties));
    std::vector<CUmemGenericAllocationHandle> members;
    for (int device = 0; device < 2; ++device) ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastAddDevice(object, device));
    for (int device = 0; device < 2; ++device) {
      members.push_back(cuda.create(on_device(device)));
      ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastBindMem(object, 0, members.back(), 0, chunk, 0));
    }
    const CUdeviceptr address = cuda.reserve();
    cuda.map(address, object);
    cuda.unmap_and_free(address);
    for (int device = 0; device < 2; ++device)
      ASSERT_ANSWER(SUCCESS, *cuda, cuMulticastUnbind(object, device, 0, chunk));
    ASSERT_ANSWER(SUCCESS, *cuda, cuMemRelease(object));
    for (const CUmemGenericAllocationHandle memory : members) ASSERT_ANSWER(SUCCESS, *cuda, cuMemRelease(memory));
  }
  EXPECT_EQ(cuda.live(), before);
  EXPECT_EQ(cuda.free_memory(), free);
}

TEST(Multicast, PassesByDescriptorWithinAProcess) {
  const auto descriptors = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  Configuration configuration = with_multicast(2);
  configuration.kernels = {storing({5})};
  Team team(configuration, chunk, descriptors);
  int descriptor = -1;
  ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemExportToShareableHandle(&descriptor, team.object, descriptors, 0));
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_ANSWER(
      SUCCESS, *team.cuda,
      cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(std::intptr_t{descriptor}), descriptors));
  EXPECT_NE(imported, team.object);
  // Both handles are the same object's.
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(imported, 0));
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *team.cuda, cuMulticastAddDevice(team.object, 0));
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(team.object, 1));
  int again = -1;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *team.cuda, cuMemExportToShareableHandle(&again, imported, descriptors, 0));
  // Memory that is bound must have a handle type, too.
  for (int device = 0; device < 2; ++device) {
    const CUmemGenericAllocationHandle memory = team.cuda.create(on_device(device, descriptors));
    const CUmemGenericAllocationHandle private_memory = team.cuda.create(on_device(device));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *team.cuda, cuMulticastBindMem(imported, 0, private_memory, 0, chunk, 0));
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindMem(imported, 0, memory, 0, chunk, 0));
  }
  ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemRelease(team.object));
  ::close(descriptor);
  team.object = imported;
  EXPECT_EQ(run(team.cuda, 0, team.map()), CUDA_SUCCESS) << "the object lives by the other handle";
}

TEST(Multicast, AnObjectThatWasNotMadeForItCannotBeExported) {
  Team team(with_multicast(1));
  int descriptor = -1;
  EXPECT_ANSWER(ERROR_INVALID_VALUE, *team.cuda,
                cuMemExportToShareableHandle(&descriptor, team.object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

TEST(Multicast, FabricHandlesNeedAChannel) {
  for (const int channels : {0, 1}) {
    Configuration configuration = with_multicast(1);
    configuration.imex_channels = channels;
    Emulated cuda(configuration);
    CUmemGenericAllocationHandle object = 0;
    const CUmulticastObjectProp properties = object_of(1, chunk, CU_MEM_HANDLE_TYPE_FABRIC);
    EXPECT_EQ(cuda->cuMulticastCreate(&object, &properties), channels == 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS);
  }
}

// The handle keeps nothing: what is imported after the object has gone is a new, empty one.
TEST(Multicast, AFabricHandleOfALostObjectMakesANewOne) {
  for (const Mode mode : {Mode::faithful, Mode::strict}) {
    Configuration configuration = with_multicast(1, mode);
    configuration.imex_channels = 1;
    if (thread_sanitizer) configuration.multicast_wait = 100;
    std::vector<std::string> warnings;
    configuration.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
    Team team(configuration, chunk, CU_MEM_HANDLE_TYPE_FABRIC);
    team.join_all();
    CUmemFabricHandle handle{};
    ASSERT_ANSWER(SUCCESS, *team.cuda,
                  cuMemExportToShareableHandle(&handle, team.object, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    CUmemGenericAllocationHandle in_time = 0, too_late = 0;
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemImportFromShareableHandle(&in_time, &handle, CU_MEM_HANDLE_TYPE_FABRIC));
    EXPECT_ANSWER(ERROR_INVALID_VALUE, *team.cuda, cuMulticastAddDevice(in_time, 0));  // the team is there
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemRelease(in_time));
    ASSERT_ANSWER(SUCCESS, *team.cuda, cuMemRelease(team.object));
    const CUresult imported = team.cuda->cuMemImportFromShareableHandle(&too_late, &handle, CU_MEM_HANDLE_TYPE_FABRIC);
    if (mode == Mode::strict) {
      EXPECT_EQ(imported, CUDA_ERROR_INVALID_VALUE);
      continue;
    }
    ASSERT_EQ(imported, CUDA_SUCCESS);
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings[0].find("MULTICAST-KEEP-UNTIL-IMPORTED"), std::string::npos) << warnings[0];
    const CUmemGenericAllocationHandle memory = team.cuda.create(on_device(0, CU_MEM_HANDLE_TYPE_FABRIC));
    EXPECT_ANSWER(ERROR_TIMEOUT, *team.cuda, cuMulticastBindMem(too_late, 0, memory, 0, chunk, 0));
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastAddDevice(too_late, 0));  // nobody is in it
    EXPECT_ANSWER(SUCCESS, *team.cuda, cuMulticastBindMem(too_late, 0, memory, 0, chunk, 0));
  }
}

TEST(Multicast, NoDmaBufCoversAnObject) {
  Team team(with_multicast(1));
  team.set_up();
  int descriptor = -1;
  EXPECT_ANSWER(
      ERROR_INVALID_VALUE, *team.cuda,
      cuMemGetHandleForAddressRange(&descriptor, team.multicast, chunk, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  EXPECT_ANSWER(
      SUCCESS, *team.cuda,
      cuMemGetHandleForAddressRange(&descriptor, team.members[0], chunk, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  ::close(descriptor);
}

TEST(Multicast, AnObjectsAddressesAreMappedAsAWhole) {
  Team team(with_multicast(1), 2 * chunk);
  team.join_all();
  const CUdeviceptr address = team.cuda.reserve(2 * chunk);
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *team.cuda, cuMemMap(address, chunk, chunk, team.object, 0));
  EXPECT_ANSWER(ERROR_NOT_SUPPORTED, *team.cuda, cuMemMap(address, chunk, 0, team.object, 0));
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemMap(address, 2 * chunk, 0, team.object, 0));
  CUmemGenericAllocationHandle retained = 0;
  EXPECT_ANSWER(SUCCESS, *team.cuda, cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(address)));
  EXPECT_EQ(retained, team.object);
}

// One whole round, as several ranks of a process make it: each adds to its own memory, all reduce, all store the sum.
TEST(Multicast, AnAllReduceIsRightOnEveryDevice) {
  Configuration configuration = with_multicast(4);
  configuration.kernels = {body_at(16, [](const KernelCall& call) {
    const multimem::Accesses memory(call);
    const auto sum = memory.load_reduce<add_f32, float>(0, 0);
    memory.store<Form{.type = Type::f32}>(0, 4, sum);
  })};
  Team team(configuration);
  team.set_up();
  for (int device = 0; device < 4; ++device) {
    team.cuda.use(device);
    team.cuda.write(team.members[static_cast<std::size_t>(device)], bytes_of({static_cast<float>(device + 1)}));
  }
  EXPECT_EQ(run(team.cuda, 2, team.multicast), CUDA_SUCCESS);
  for (int device = 0; device < 4; ++device) {
    team.cuda.use(device);
    EXPECT_EQ(team.cuda.read(team.members[static_cast<std::size_t>(device)] + 4, 4),
              std::vector<unsigned char>({0, 0, 0x20, 0x41}))
        << "10.0F on device " << device;
  }
}

}  // namespace
}  // namespace cuvmm::emulator
