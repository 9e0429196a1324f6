// The lies about multicast objects, and about the kernels that wait for other ranks.
#include <algorithm>
#include <string_view>

#include "driver/lying_driver.hpp"

namespace cuvmm::driver {

namespace {

constexpr size_t multicast_unit = size_t{2} << 20;

bool is_barrier(std::string_view kernel) {
  return kernel.ends_with("_meet") || kernel.ends_with("_barrier");
}

}  // namespace

CUresult LyingDriver::cuMulticastCreate(CUmemGenericAllocationHandle* multicast,
                                        const CUmulticastObjectProp* properties) {
  CUmulticastObjectProp asked{};
  if (properties != nullptr) asked = *properties;
  if (lies_.round_multicast_sizes && properties != nullptr) {
    asked.size = (asked.size + multicast_unit - 1) / multicast_unit * multicast_unit;
    properties = &asked;
  }
  const CUresult result = next().cuMulticastCreate(multicast, properties);
  if (result == CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    objects_[*multicast] = {.size = asked.size};
  }
  return result;
}

void LyingDriver::forget_object(CUmemGenericAllocationHandle multicast) {
  objects_.erase(multicast);
  std::erase_if(added_, [&](const auto& each) { return each.first == multicast; });
}

// Whether a multicast object begins there, whoever created it: devices were added to it here.
bool LyingDriver::is_multicast(CUdeviceptr pointer) const {
  const auto mapping = mapped_.find(pointer);
  return mapping != mapped_.end() && std::any_of(added_.begin(), added_.end(), [&](const auto& each) {
           return each.first == mapping->second.handle;
         });
}

CUresult LyingDriver::cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device) {
  const CUresult result = next().cuMulticastAddDevice(multicast, device);
  const std::lock_guard lock(mutex_);
  if (result == CUDA_SUCCESS) added_.emplace(multicast, device);
  return lies_.accept_device_twice && added_.contains({multicast, device}) ? CUDA_SUCCESS : result;
}

CUmemGenericAllocationHandle LyingDriver::substitute(CUmemGenericAllocationHandle multicast,
                                                     CUmemGenericAllocationHandle memory, size_t size,
                                                     CUdevice* device) {
  {
    const std::lock_guard lock(mutex_);
    const auto object = objects_.find(multicast);
    if (!lies_.lose_replica || object == objects_.end() || object->second.size != size) return 0;
    if (++object->second.bound_wholly != 2) return 0;
  }
  CUmemAllocationProp properties{};
  CUmemGenericAllocationHandle other = 0;
  if (next().cuMemGetAllocationPropertiesFromHandle(&properties, memory) != CUDA_SUCCESS ||
      next().cuMemCreate(&other, size, &properties, 0) != CUDA_SUCCESS)
    return 0;
  *device = properties.location.id;
  return other;
}

template <class Bind>
CUresult LyingDriver::bind_as_told(CUmemGenericAllocationHandle multicast, CUmemGenericAllocationHandle memory,
                                   size_t memory_offset, size_t size, const Bind& bind) {
  CUdevice device = 0;
  const CUmemGenericAllocationHandle other = substitute(multicast, memory, size, &device);
  if (other == 0) return bind(memory, lies_.misplace_bind ? 0 : memory_offset);
  const CUresult result = bind(other, 0);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(next().cuMemRelease(other));
    return result;
  }
  const std::lock_guard lock(mutex_);
  objects_[multicast].substitutes.insert_or_assign(device, other);
  return result;
}

CUresult LyingDriver::cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                                         CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                         unsigned long long flags) {
  return bind_as_told(multicast, memory, memory_offset, size, [&](CUmemGenericAllocationHandle bound, size_t from) {
    return next().cuMulticastBindMem(multicast, multicast_offset, bound, from, size, flags);
  });
}

CUresult LyingDriver::cuMulticastBindMem_v2(CUmemGenericAllocationHandle multicast, CUdevice device,
                                            size_t multicast_offset, CUmemGenericAllocationHandle memory,
                                            size_t memory_offset, size_t size, unsigned long long flags) {
  return bind_as_told(multicast, memory, memory_offset, size, [&](CUmemGenericAllocationHandle bound, size_t from) {
    return next().cuMulticastBindMem_v2(multicast, device, multicast_offset, bound, from, size, flags);
  });
}

CUresult LyingDriver::cuMulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                        size_t multicast_offset, size_t size) {
  const CUresult result = next().cuMulticastUnbind(multicast, device, multicast_offset, size);
  if (result != CUDA_SUCCESS) return result;
  CUmemGenericAllocationHandle released = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto object = objects_.find(multicast);
    if (object == objects_.end()) return result;
    const auto other = object->second.substitutes.extract(device);
    if (!other.empty()) released = other.mapped();
  }
  if (released != 0) static_cast<void>(next().cuMemRelease(released));
  return result;
}

CUresult LyingDriver::cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const CUresult result = next().cuModuleGetFunction(function, module, name);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  if (is_barrier(name))
    barriers_.insert(*function);
  else
    barriers_.erase(*function);
  return result;
}

CUresult LyingDriver::cuLaunchKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                     unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                                     unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                                     void** kernel_params, void** extra) {
  if (lies_.skip_barriers) {
    const std::lock_guard lock(mutex_);
    if (barriers_.contains(function)) return CUDA_SUCCESS;
  }
  return next().cuLaunchKernel(function, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,
                               shared_mem_bytes, stream, kernel_params, extra);
}

}  // namespace cuvmm::driver
