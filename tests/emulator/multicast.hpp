// Multicast objects for tests: teams of emulated devices, and kernels that reach them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emulated.hpp"
#include "emulator/multimem.hpp"

namespace cuvmm::emulator::test {

inline Configuration with_multicast(int devices, Mode mode = Mode::strict) {
  Configuration configuration = strict(devices);
  configuration.mode = mode;
  configuration.profile = *find_profile("h200-multicast");
  return configuration;
}

inline CUmulticastObjectProp object_of(unsigned devices, std::uint64_t bytes = chunk,
                                       unsigned long long handle_types = 0) {
  CUmulticastObjectProp properties{};
  properties.numDevices = devices;
  properties.size = bytes;
  properties.handleTypes = handle_types;
  return properties;
}

// A driver with a multicast object for all its devices, to which nothing was done yet.
class Team {
 public:
  explicit Team(const Configuration& configuration, std::uint64_t size = chunk, unsigned long long handle_types = 0)
      : cuda(configuration), devices(configuration.devices), bytes(size) {
    const CUmulticastObjectProp properties =
        object_of(static_cast<unsigned>(configuration.devices), size, handle_types);
    EXPECT_EQ(cuda->cuMulticastCreate(&object, &properties), CUDA_SUCCESS) << cuda->explanation();
  }

  void join_all() const {
    for (int device = 0; device < devices; ++device)
      EXPECT_EQ(cuda->cuMulticastAddDevice(object, device), CUDA_SUCCESS) << cuda->explanation();
  }

  // Memory of the device, mapped for it alone and bound to all of the object.
  CUdeviceptr bind(int device) {
    const CUdeviceptr address = cuda.mapped(bytes, on_device(device), grant_device(device));
    EXPECT_EQ(cuda->cuMulticastBindAddr(object, 0, address, bytes, 0), CUDA_SUCCESS) << cuda->explanation();
    members.push_back(address);
    return address;
  }

  // The object's addresses, open to all its devices.
  CUdeviceptr map() {
    multicast = cuda.reserve(bytes);
    cuda.map(multicast, object, bytes);
    for (int device = 0; device < devices; ++device)
      EXPECT_EQ(cuda.grant(multicast, bytes, grant_device(device)), CUDA_SUCCESS) << cuda->explanation();
    return multicast;
  }

  void set_up() {
    join_all();
    for (int device = 0; device < devices; ++device) (void)bind(device);
    (void)map();
  }

  Emulated cuda;
  int devices;
  std::uint64_t bytes;
  CUmemGenericAllocationHandle object = 0;
  std::vector<CUdeviceptr> members;  // of each device: where its own memory is
  CUdeviceptr multicast = 0;
};

// A kernel named "body" whose views are these and whose function does that.
inline HostKernel body(std::vector<std::size_t> argument_bytes,
                       std::function<std::vector<KernelView>(const KernelArguments&)> views,
                       std::function<KernelProgress(const KernelCall&)> run) {
  return {"body", std::move(argument_bytes), std::move(views), std::move(run)};
}

// One whose arguments are a multicast address and, if it has two, an address of memory; of each it touches `bytes`.
inline HostKernel body_at(std::uint64_t bytes, std::function<void(const KernelCall&)> run, bool with_memory = false) {
  std::vector<std::size_t> arguments(with_memory ? 2 : 1, sizeof(std::uint64_t));
  return body(
      std::move(arguments),
      [bytes, with_memory](const KernelArguments& given) {
        std::vector<KernelView> views{{given.get<std::uint64_t>(0), bytes, true, 1, true}};
        if (with_memory) views.push_back({given.get<std::uint64_t>(1), bytes, true, 1, false});
        return views;
      },
      [run = std::move(run)](const KernelCall& call) {
        run(call);
        return KernelProgress::done;
      });
}

}  // namespace cuvmm::emulator::test
