// A program that is linked with libcuda.so.1 and shares memory with processes that it starts.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "driver/abi.hpp"
#include "message.hpp"

using namespace cuvmm::abi;

extern "C" {
CUresult cuInit(unsigned flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags);
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptors, size_t count);
CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        CUmemAllocationHandleType type);
CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source, size_t bytes);
CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source, size_t bytes);
}

namespace {

using cuvmm::tests::receive_message;
using cuvmm::tests::send_message;

constexpr size_t chunk = size_t{2} << 20;
constexpr auto descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr int child_socket = 9;

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (false)

void begin() {
  CUcontext context = nullptr;
  CHECK(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

CUdeviceptr mapped(CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(cuMemAddressReserve(&address, chunk, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(address, chunk, 0, handle, 0) == CUDA_SUCCESS);
  CHECK(cuMemSetAccess(address, chunk, &access, 1) == CUDA_SUCCESS);
  return address;
}

CUdeviceptr created(int* descriptor) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = descriptor_type;
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, chunk, &properties, 0) == CUDA_SUCCESS);
  CHECK(cuMemExportToShareableHandle(descriptor, handle, descriptor_type, 0) == CUDA_SUCCESS);
  return mapped(handle);
}

void write_number(CUdeviceptr address, unsigned value) {
  CHECK(cuMemcpyHtoD_v2(address, &value, sizeof value) == CUDA_SUCCESS);
}

unsigned number_at(CUdeviceptr address) {
  unsigned value = 0;
  CHECK(cuMemcpyDtoH_v2(&value, address, sizeof value) == CUDA_SUCCESS);
  return value;
}

// Waits for a descriptor, reads what the parent wrote, and writes in its turn.
int child(int socket) {
  begin();
  auto message = receive_message(socket);
  CHECK(message && message->descriptor);
  CUmemGenericAllocationHandle handle = 0;
  auto* const shareable = reinterpret_cast<void*>(static_cast<std::uintptr_t>(message->descriptor.get()));
  CHECK(cuMemImportFromShareableHandle(&handle, shareable, descriptor_type) == CUDA_SUCCESS);
  const CUdeviceptr address = mapped(handle);
  CHECK(number_at(address) == 1234);
  write_number(address, 4321);
  CHECK(send_message(socket, "done"));
  return 0;
}

int parent(int socket) {
  begin();
  int descriptor = -1;
  const CUdeviceptr address = created(&descriptor);
  write_number(address, 1234);
  CHECK(send_message(socket, "memory", descriptor));
  CHECK(receive_message(socket));
  CHECK(number_at(address) == 4321);
  int status = -1;
  CHECK(::wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(::wait(&status) < 0 && errno == ECHILD);  // whatever the driver started is nobody's child
  return 0;
}

int share(const char* self, bool by_exec) {
  int ends[2];
  CHECK(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const pid_t process = ::fork();
  CHECK(process >= 0);
  if (process > 0) {
    ::close(ends[1]);
    return parent(ends[0]);
  }
  ::close(ends[0]);
  if (!by_exec) return child(ends[1]);
  CHECK(::dup2(ends[1], child_socket) == child_socket);
  ::execl(self, self, "child", nullptr);
  return 1;
}

// The first one of two processes in a pipeline: the second one reads the descriptor's socket from a name.
int dead_handle() {
  begin();
  std::fprintf(stderr, "code %d\n", static_cast<int>(cuMemRelease(0x777)));
  return 0;
}

}  // namespace

int main(int, char** words) {
  const std::string what = words[1];
  if (what == "fork") return share(words[0], false);
  if (what == "exec") return share(words[0], true);
  if (what == "child") return child(child_socket);
  if (what == "dead-handle") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would turn the signal into an exit
    return dead_handle();
  }
  if (what == "start") {
    const CUresult result = cuInit(0);
    std::printf("%d\n", static_cast<int>(result));
    return 0;
  }
  return 100;
}
