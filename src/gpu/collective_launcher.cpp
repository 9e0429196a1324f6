#include "gpu/collective_launcher.hpp"

#include "clean_up.hpp"
#include "driver/call.hpp"

namespace cuvmm::gpu {

using driver::call;
using driver::EntryPoint;

CollectiveLauncher::HeldContext::HeldContext(const Device& device) : device_(device) {
  CUctx_st* context = nullptr;
  call<EntryPoint::cuDevicePrimaryCtxRetain>(device_.driver().interface(), &context, device_.handle());
}
CollectiveLauncher::HeldContext::~HeldContext() {
  clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(device_.driver().interface(), device_.handle());
}

CollectiveLauncher::CollectiveLauncher(const Device& device) : device_(device), context_(device) {
  const CurrentContext own(device_);
  call<EntryPoint::cuModuleLoadData>(device_.driver().interface(), &module_, collective_image().data());
}

CollectiveLauncher::~CollectiveLauncher() {
  const CurrentContext own(device_);
  clean_up<EntryPoint::cuModuleUnload>(device_.driver().interface(), module_);
}

abi::CUfunction CollectiveLauncher::function(std::string_view kernel) {
  if (const auto known = functions_.find(kernel); known != functions_.end()) return known->second;
  const std::string name(kernel);
  abi::CUfunction found = nullptr;
  call<EntryPoint::cuModuleGetFunction>(device_.driver().interface(), &found, module_, name.c_str());
  functions_.emplace(name, found);
  return found;
}

void CollectiveLauncher::launch_bytes(abi::CUstream stream, std::string_view kernel, void* arguments,
                                      const CollectiveShape& shape) {
  const CurrentContext own(device_);
  void* parameters[] = {arguments};
  call<EntryPoint::cuLaunchKernel>(device_.driver().interface(), function(kernel), shape.blocks, 1U, 1U, shape.threads,
                                   1U, 1U, 0U, stream, parameters, nullptr);
}

}  // namespace cuvmm::gpu
