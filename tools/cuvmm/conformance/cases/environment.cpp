#include "conformance/cases/environment.hpp"

#include <utility>

namespace cuvmm::conformance {

CUmemAllocationProp device_memory(int device, int handle_types) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location(device);
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  return properties;
}

CUmemAllocationProp host_memory(CUmemLocationType type, int handle_types) {
  CUmemAllocationProp properties = device_memory(0, handle_types);
  properties.location.type = type;
  return properties;
}

CUmemAllocationProp exportable() {
  return device_memory(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUmemLocation location(int id, int type) {
  return {static_cast<CUmemLocationType>(type), id};
}

CUmemAccessDesc access_of(int id, int flags, int type) {
  return {location(id, type), static_cast<CUmemAccess_flags>(flags)};
}

Environment::Environment(DriverFactory make_driver) : make_driver_(std::move(make_driver)) {}

std::optional<std::string> Environment::begin(Start start) {
  if (start == Start::nothing) return std::nullopt;
  driver_ = make_driver_();
  if (start == Start::loaded) return std::nullopt;
  if (const CUresult result = driver_->cuInit(0); result != CUDA_SUCCESS) return "(cuInit " + result_name(result) + ")";
  expect("device count", driver_->cuDeviceGetCount(&device_count_));
  if (start == Start::initialized) return std::nullopt;
  context_ = primary(0);
  make_current(context_);
  return std::nullopt;
}

void Environment::expect(const char* step, CUresult result) {
  if (result != CUDA_SUCCESS) notes_ += std::string{"[setup "} + step + " " + result_name(result) + "]";
}

CUresult Environment::try_create(std::size_t size, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  return driver_->cuMemCreate(&handle, size, &properties, 0);
}

CUmemGenericAllocationHandle Environment::create(std::size_t size, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  expect("create", driver_->cuMemCreate(&handle, size, &properties, 0));
  return handle;
}

CUdeviceptr Environment::reserve(std::size_t size, CUdeviceptr hint) {
  CUdeviceptr address = 0;
  expect("reserve", driver_->cuMemAddressReserve(&address, size, 0, hint, 0));
  return address;
}

void Environment::map(CUdeviceptr address, std::size_t size, CUmemGenericAllocationHandle handle) {
  expect("map", driver_->cuMemMap(address, size, 0, handle, 0));
}

void Environment::grant(CUdeviceptr address, std::size_t size, int flags, int device) {
  const CUmemAccessDesc descriptor = access_of(device, flags);
  expect("access", driver_->cuMemSetAccess(address, size, &descriptor, 1));
}

void Environment::unmap(CUdeviceptr address, std::size_t size) {
  expect("unmap", driver_->cuMemUnmap(address, size));
}

Exported Environment::export_new(std::size_t size) {
  Exported exported{create(size, exportable()), -1};
  expect("export", driver_->cuMemExportToShareableHandle(&exported.descriptor, exported.handle,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return exported;
}

CUresult Environment::import(int descriptor, CUmemGenericAllocationHandle& handle, int type) {
  return driver_->cuMemImportFromShareableHandle(&handle, as_os_handle(descriptor),
                                                 static_cast<CUmemAllocationHandleType>(type));
}

void Environment::map_new(CUdeviceptr address, std::size_t size, const CUmemAllocationProp& properties) {
  map(address, size, create(size, properties));
}

CUdeviceptr Environment::mapped(std::size_t size, int flags, const CUmemAllocationProp& properties) {
  const CUdeviceptr address = reserve(size);
  map_new(address, size, properties);
  if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) grant(address, size, flags);
  return address;
}

std::string Environment::access(CUdeviceptr address, int id, int type) {
  unsigned long long flags = 99;  // no rights have this value: it shows that the driver wrote nothing
  const CUmemLocation where = location(id, type);
  const CUresult result = driver_->cuMemGetAccess(&flags, &where, address);
  return slashes({result, flags});
}

CUdeviceptr Environment::allocate(std::size_t size) {
  CUdeviceptr address = 0;
  expect("allocate", driver_->cuMemAlloc(&address, size));
  return address;
}

void* Environment::allocate_host(std::size_t size, unsigned flags) {
  void* pointer = nullptr;
  expect("allocate host", driver_->cuMemHostAlloc(&pointer, size, flags));
  return pointer;
}

void Environment::write_word(CUdeviceptr address, unsigned value) {
  expect("write", driver_->cuMemcpyHtoD(address, &value, sizeof value));
}

unsigned Environment::read_word(CUdeviceptr address) {
  unsigned value = 0;
  expect("read", driver_->cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

CUcontext Environment::primary(int device) {
  CUcontext context = nullptr;
  expect("primary context", driver_->cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

CUcontext Environment::new_context(int device, unsigned flags) {
  CUcontext context = nullptr;
  expect("new context", driver_->cuCtxCreate(&context, flags, device));
  return context;
}

void Environment::make_current(CUcontext context) {
  expect("set current", driver_->cuCtxSetCurrent(context));
}

CUstream Environment::stream(unsigned flags) {
  CUstream stream = nullptr;
  expect("stream", driver_->cuStreamCreate(&stream, flags));
  return stream;
}

CUevent Environment::event(unsigned flags) {
  CUevent event = nullptr;
  expect("event", driver_->cuEventCreate(&event, flags));
  return event;
}

}  // namespace cuvmm::conformance
