// A program that is linked with libcuda.so.1, as most are. The prototypes are those of the driver's symbols, and so as
// real programs have them after the preprocessor.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "client.hpp"

using namespace cuvmm::abi;

extern "C" {
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int* version);
CUresult cuDeviceGetCount(int* count);
CUresult cuDeviceGet(CUdevice* device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext* context);
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned references, unsigned flags);
CUresult cuUserObjectRetain(CUuserObject object, unsigned count);
CUresult cuUserObjectRelease(CUuserObject object, unsigned count);
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t size);
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t size);
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptors, size_t count);
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes);
CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr destination, const void* source, size_t bytes);
CUresult cuMemcpyDtoH_v2_ptds(void* destination, CUdeviceptr source, size_t bytes);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr destination, unsigned char value, size_t count);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr destination, unsigned char value, size_t count, CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status, unsigned long long* id,
                                        CUgraph* graph, const CUgraphNode** dependencies, const void** edge_data,
                                        size_t* count);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuEventQuery(CUevent event);
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuGetExportTable(const void** table, const CUuuid* id);
CUresult cuCtxResetPersistingL2Cache();
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context);
CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device);
CUresult cuDeviceGetLuid(char* luid, unsigned* node_mask, CUdevice device);
CUresult cuStreamCreate(CUstream* stream, unsigned flags);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, void** green_context);
CUresult cuStreamGetDevice(CUstream stream, CUdevice* device);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, unsigned long long* id);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies, const void* data,
                                              size_t count, unsigned flags);
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph);
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t bytes);
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, void* parameters);
CUresult cuGLInit();
}

namespace cuvmm::tests {
namespace {

CUmemLocation on_device() {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return location;
}

int make_current() {
  CUdevice device = -1;
  CUcontext context = nullptr;
  CHECK(cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS);
  CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  return 0;
}

int bytes_come_back(CUdeviceptr address, unsigned char salt) {
  std::vector<unsigned char> sent(chunk);
  for (std::size_t at = 0; at < sent.size(); ++at) sent[at] = static_cast<unsigned char>(at * 7 + salt);
  std::vector<unsigned char> received(sent.size());
  CHECK(cuMemcpyHtoD_v2(address, sent.data(), sent.size()) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoH_v2(received.data(), address, received.size()) == CUDA_SUCCESS);
  CHECK(received == sent);
  return 0;
}

// Memory is created, mapped, granted, used and given back.
int live(unsigned char salt) {
  CHECK(make_current() == 0);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = on_device();
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  CHECK(cuMemCreate(&handle, chunk + 1, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemCreate(&handle, chunk, &properties, 0) == CUDA_SUCCESS);
  CHECK(cuMemAddressReserve(&address, chunk, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(address, chunk, 0, handle, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const unsigned char byte = 1;
  CHECK(cuMemcpyHtoD_v2(address, &byte, 1) != CUDA_SUCCESS);
  CHECK(cuMemSetAccess(address, chunk, &access, 1) == CUDA_SUCCESS);
  CHECK(bytes_come_back(address, salt) == 0);
  CHECK(cuMemUnmap(address, chunk) == CUDA_SUCCESS);
  CHECK(cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(cuMemAddressFree(address, chunk) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
  return 0;
}

int life_cycle() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  return live(3);
}

int ended_user_objects = 0;

// As recorded on an H200: they can be made before cuInit, and are known after it.
int user_objects_before_initialisation() {
  const auto end = [](void*) { ++ended_user_objects; };
  CUuserObject object = nullptr;
  CUuserObject other = nullptr;
  CHECK(cuUserObjectCreate(&object, nullptr, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS);
  CHECK(cuUserObjectRetain(object, 1) == CUDA_SUCCESS);
  CHECK(cuUserObjectRelease(nullptr, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuUserObjectCreate(&other, nullptr, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) == CUDA_SUCCESS);
  CHECK(other != object);
  CHECK(cuUserObjectRelease(object, 2) == CUDA_SUCCESS);
  CHECK(ended_user_objects == 1);
  CHECK(cuUserObjectRelease(object, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuUserObjectRelease(other, 1) == CUDA_SUCCESS);
  CHECK(ended_user_objects == 2);
  return 0;
}

int before_initialisation() {
  int number = -1;
  CHECK(cuDriverGetVersion(&number) == CUDA_SUCCESS);
  CHECK(number == 13000);
  CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuEventQuery(nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetCount(&number) == CUDA_SUCCESS);
  CHECK(number == 2);
  CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  return 0;
}

// What stands in the environment counts when cuInit is called, not before and not after.
int environment() {
  int count = -1;
  CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(::setenv("CUVMM_EMULATOR", "devices=none", 1) == 0);
  CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE);
  CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(::setenv("CUVMM_EMULATOR", "devices=3", 1) == 0);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(::setenv("CUVMM_EMULATOR", "devices=4", 1) == 0);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 3);
  return 0;
}

int not_offered() {
  CUdeviceptr address = 0;
  for (int time = 0; time < 2; ++time) {
    CHECK(cuCtxResetPersistingL2Cache() == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cuGLInit() == CUDA_ERROR_NOT_SUPPORTED);
    const void* table = &address;
    const CUuuid id{};
    CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_SUPPORTED);
    CHECK(table == nullptr);
  }
  return 0;
}

int device_code() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(make_current() == 0);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  std::array<char, 64> machine_code{'\x7f', 'E', 'L', 'F', 2, 1, 1};
  CHECK(cuModuleLoadData(&module, machine_code.data()) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuModuleLoadData(&module, "no module at all") == CUDA_ERROR_INVALID_IMAGE);
  const char* const text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry of_my_own()\n{\nret;\n}\n";
  CHECK(cuModuleLoadData(&module, text) == CUDA_SUCCESS);
  CHECK(cuModuleGetFunction(&function, module, "of_my_own") == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuModuleGetFunction(&function, module, "of_nobody") == CUDA_ERROR_NOT_FOUND);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  return 0;
}

// A null stream is this thread's own to the per-thread forms: it can be captured, the legacy one cannot.
int per_thread_stream_forms() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(make_current() == 0);
  CUgraph graph = nullptr;
  CHECK(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  const void* edges = &status;
  CHECK(cuStreamGetCaptureInfo_v3_ptsz(nullptr, &status, nullptr, nullptr, nullptr, &edges, nullptr) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(edges == nullptr);
  CHECK(cuStreamEndCapture_ptsz(nullptr, &graph) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);

  CUdeviceptr address = 0;
  std::array<unsigned char, 8> bytes{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(cuMemAlloc_v2(&address, chunk) == CUDA_SUCCESS);
  CHECK(cuMemcpyHtoD_v2_ptds(address, bytes.data(), bytes.size()) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoD_v2_ptds(address + 8, address, 4) == CUDA_SUCCESS);
  CHECK(cuMemsetD8_v2_ptds(address, 9, 2) == CUDA_SUCCESS);
  CHECK(cuMemsetD8Async_ptsz(address + 4, 7, 4, nullptr) == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize_ptsz(nullptr) == CUDA_SUCCESS);
  std::array<unsigned char, 12> received{};
  CHECK(cuMemcpyDtoH_v2_ptds(received.data(), address, received.size()) == CUDA_SUCCESS);
  CHECK((received == std::array<unsigned char, 12>{9, 9, 3, 4, 7, 7, 7, 7, 1, 2, 3, 4}));
  CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
  return 0;
}

// What programs that are built with today's headers call.
int newer_forms() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUcontext current = nullptr;
  const int parameters = 0;
  CHECK(cuCtxCreate_v4(&context, const_cast<int*>(&parameters), 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuCtxCreate_v4(&context, nullptr, 0, 0) == CUDA_SUCCESS);
  CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == context);
  CHECK(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
  return 0;
}

// What these forms do is tested where the newest ones are: here, that they do it and with which arguments.
int other_forms() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CUcontext other = nullptr;
  CHECK(cuCtxCreate_v4(&other, nullptr, 0, 1) == CUDA_SUCCESS);
  CHECK(make_current() == 0);
  CUdevice device = -1;
  CHECK(cuCtxGetDevice_v2(&device, nullptr) == CUDA_SUCCESS && device == 0);
  CHECK(cuCtxGetDevice_v2(&device, other) == CUDA_SUCCESS && device == 1);
  CHECK(cuCtxSynchronize_v2(other) == CUDA_SUCCESS);
  CHECK(cuCtxGetDevice_v2(&device, nullptr) == CUDA_SUCCESS && device == 0);
  int major = 0, minor = -1;
  CHECK(cuDeviceComputeCapability(&major, &minor, 0) == CUDA_SUCCESS && major == 9 && minor == 0);
  std::array<char, 8> luid{};
  unsigned node_mask = 0;
  CHECK(cuDeviceGetLuid(luid.data(), &node_mask, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuDeviceGetLuid(luid.data(), &node_mask, 7) == CUDA_ERROR_INVALID_DEVICE);
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  void* green = &device;
  CHECK(cuStreamGetCtx_v2(stream, &context, &green) == CUDA_SUCCESS && context != nullptr && green == nullptr);
  CHECK(cuStreamGetDevice(stream, &device) == CUDA_SUCCESS && device == 0);
  CUstreamCaptureStatus status{};
  unsigned long long id = 0;
  CHECK(cuStreamGetCaptureInfo(stream, &status, &id) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(cuStreamBeginCapture(stream) == CUDA_SUCCESS);
  CHECK(cuStreamGetCaptureInfo(stream, &status, &id) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(cuStreamUpdateCaptureDependencies_v2(stream, nullptr, nullptr, 0, 1) == CUDA_SUCCESS);
  CHECK(cuStreamUpdateCaptureDependencies_v2(stream, nullptr, nullptr, 0, 2) == CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  CHECK(cuGraphInstantiate_v2(&exec, graph, nullptr, nullptr, 0) == CUDA_SUCCESS);
  struct {
    unsigned long long flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
  } parameters{2, stream, nullptr, -1};  // UPLOAD
  CHECK(cuGraphInstantiateWithParams(&exec, graph, &parameters) == CUDA_SUCCESS && parameters.result == 0);
  parameters.flags = 0x100;
  CHECK(cuGraphInstantiateWithParams(&exec, graph, &parameters) == CUDA_ERROR_INVALID_VALUE && parameters.result == 1);
  CHECK(cuGraphInstantiateWithParams(&exec, graph, nullptr) == CUDA_ERROR_INVALID_VALUE);
  return 0;
}

int many_threads() {
  std::array<int, 12> failures{};
  std::vector<std::thread> threads;
  threads.reserve(failures.size());
  for (std::size_t number = 0; number < failures.size(); ++number)
    threads.emplace_back([&failures, number] {
      failures[number] = cuInit(0) == CUDA_SUCCESS ? live(static_cast<unsigned char>(number)) : 1;
    });
  for (std::thread& thread : threads) thread.join();
  for (const int failure : failures) CHECK(failure == 0);
  return 0;
}

// The exit status of a child that runs the work, or -1.
template <class Work>
int in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(work());
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int without_driver() {
  int number = 0;
  CHECK(cuDriverGetVersion(&number) == CUDA_SUCCESS);
  CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
  return 0;
}

// A child of a process with a driver has none, nor have its own children; one that was forked before may make its own.
int forked() {
  int number = 0;
  CHECK(cuDeviceGetCount(&number) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(in_child(life_cycle) == 0);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(in_child([] { return without_driver() == 0 && in_child(without_driver) == 0 ? 0 : 1; }) == 0);
  return live(5);
}

// However far other threads have come with making the driver, a child gets on. Making it takes long here: the settings
// are many.
int forked_meanwhile() {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([] {
      int count = 0;
      static_cast<void>(cuDeviceGetCount(&count));
      static_cast<void>(cuInit(0));
    });
  int stuck = 0;
  for (int time = 0; time < 20; ++time)
    stuck += in_child([] {
      const CUresult result = cuInit(0);
      return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(stuck == 0);
  return live(1);
}

// An object that ends after main: the driver is there until the process is gone.
struct Late {
  Late() = default;
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  Late(Late&&) = delete;
  Late& operator=(Late&&) = delete;
  ~Late() {
    if (address != 0 && (bytes_come_back(address, 11) != 0 || cuMemFree_v2(address) != CUDA_SUCCESS)) ::_exit(1);
  }
  CUdeviceptr address = 0;
};
Late late;  // before the driver is made, and so ended after all that the driver made
thread_local Late late_in_thread;

int late_calls() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(make_current() == 0);
  CHECK(std::atexit([] {
          int count = 0;
          if (cuDeviceGetCount(&count) != CUDA_SUCCESS) ::_exit(1);
        }) == 0);
  std::array<int, 1> failures{};
  std::thread([&] {
    CUdeviceptr& address = late_in_thread.address;
    failures[0] = make_current() != 0 || cuMemAlloc_v2(&address, chunk) != CUDA_SUCCESS ? 1 : 0;
  }).join();
  CHECK(failures[0] == 0);
  CHECK(cuMemAlloc_v2(&late.address, chunk) == CUDA_SUCCESS);
  return 0;
}

// The library has a C++ runtime of its own, which does not meet the program's.
int exceptions() {
  CHECK(cuInit(0) == CUDA_SUCCESS);
  try {
    CUcontext none = nullptr;
    if (cuCtxGetCurrent(&none) == CUDA_SUCCESS) throw std::runtime_error("thrown between calls");
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "thrown between calls");
    return live(2);
  }
  return 1;
}

constexpr Case cases[] = {
    {"life_cycle", life_cycle},
    {"before_initialisation", before_initialisation},
    {"user_objects_before_initialisation", user_objects_before_initialisation},
    {"environment", environment},
    {"not_offered", not_offered},
    {"device_code", device_code},
    {"per_thread_stream_forms", per_thread_stream_forms},
    {"other_forms", other_forms},
    {"newer_forms", newer_forms},
    {"many_threads", many_threads},
    {"forked", forked},
    {"forked_meanwhile", forked_meanwhile},
    {"late_calls", late_calls},
    {"exceptions", exceptions},
};

}  // namespace
}  // namespace cuvmm::tests

int main(int count, char** words) {
  return cuvmm::tests::run_case(cuvmm::tests::cases, count, words);
}
