// A process of a test: does what it is told over descriptor 3, one line a call of the driver, and answers the code and
// what the call gave.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "emulator/configuration.hpp"
#include "emulator/emulated_driver.hpp"
#include "emulator/multimem.hpp"
#include "message.hpp"

using namespace cuvmm::abi;

namespace cuvmm::tests {
namespace {

constexpr int control = 3;
constexpr auto descriptor_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;
  std::string text;
  emulator::memory::FileDescriptor descriptor;
};

std::uint64_t number(const std::string& word) {
  return std::strtoull(word.c_str(), nullptr, 0);
}

template <class Handle>
std::string as_hexadecimal(const Handle& handle) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&handle);
  std::string text;
  for (std::size_t index = 0; index < sizeof handle; ++index) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[index]);
    text += digits;
  }
  return text;
}

template <class Handle>
Handle from_hexadecimal(const std::string& text) {
  Handle handle{};
  auto* const bytes = reinterpret_cast<unsigned char*>(&handle);
  for (std::size_t index = 0; index < sizeof handle && 2 * index + 1 < text.size(); ++index)
    std::from_chars(&text[2 * index], &text[2 * index] + 2, bytes[index], 16);
  return handle;
}

class Actor {
 public:
  Outcome perform(const Words& words, int descriptor) {
    const std::string& verb = words.at(0);
    if (verb == "init") return init();
    if (verb == "create") return create(words);
    if (verb == "release") return {driver_->cuMemRelease(number(words.at(1))), {}, {}};
    if (verb == "map") return map(words);
    if (verb == "unmap") return {driver_->cuMemUnmap(number(words.at(1)), number(words.at(2))), {}, {}};
    if (verb == "write") return write(words);
    if (verb == "read") return read(number(words.at(1)));
    if (verb == "touch") return touch(number(words.at(1)), byte(words.at(2)));
    if (verb == "look") return look(number(words.at(1)));
    if (verb == "use") return use(words);
    if (verb == "mc-create") return create_multicast(words);
    if (verb == "mc-add") return {driver_->cuMulticastAddDevice(number(words.at(1)), device(words.at(2))), {}, {}};
    if (verb == "mc-bind") return bind_multicast(words);
    if (verb == "mc-unbind") return unbind_multicast(words);
    if (verb == "mc-store") return launch("mc_store", {number(words.at(1)), number(words.at(2))});
    if (verb == "mc-sum") return sum_multicast(number(words.at(1)));
    if (verb == "export") return export_descriptor(words);
    if (verb == "import") return import(reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)));
    if (verb == "import-number") return import(reinterpret_cast<void*>(number(words.at(1))));
    if (verb == "export-fabric") return export_fabric(words);
    if (verb == "import-fabric") return import_fabric(words);
    if (verb == "alloc") return allocate(words);
    if (verb == "alloc-pooled") return allocate_pooled(words);
    if (verb == "free-pooled") return free_pooled(words);
    if (verb == "pool-create") return create_pool(words);
    if (verb == "pool-destroy") return {driver_->cuMemPoolDestroy(pool(words.at(1))), {}, {}};
    if (verb == "pool-export") return export_pool(words);
    if (verb == "pool-import") return import_pool(reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor)));
    if (verb == "pool-allocate") return allocate_from_pool(words);
    if (verb == "pool-export-pointer") return export_pointer(words);
    if (verb == "pool-import-pointer") return import_pointer(words);
    if (verb == "pool-numbers") return numbers_of_pool(words);
    if (verb == "free") return {driver_->cuMemFree(number(words.at(1))), {}, {}};
    if (verb == "ipc-get") return ipc_get(words);
    if (verb == "ipc-open") return ipc_open(words);
    if (verb == "ipc-close") return {driver_->cuIpcCloseMemHandle(number(words.at(1))), {}, {}};
    if (verb == "info") return info();
    if (verb == "devices") return devices();
    if (verb == "explain") return {0, driver_->explanation(), {}};
    if (verb == "fork") return leave_child(words);
    if (verb == "set-user") return {::seteuid(static_cast<uid_t>(number(words.at(1)))), {}, {}};
    return {-1, "no such verb", {}};
  }

 private:
  static unsigned char byte(const std::string& word) { return static_cast<unsigned char>(number(word)); }
  static int device(const std::string& word) { return static_cast<int>(number(word)); }

  // Kernels at a multicast address: one stores a number in all devices' memory, one loads the sum of what is there.
  static std::vector<emulator::HostKernel> kernels() {
    using namespace emulator::multimem;
    const auto views = [](const emulator::KernelArguments& given) {
      return std::vector<emulator::KernelView>{{given.get<std::uint64_t>(0), 8, true, 8, true}};
    };
    return {{"mc_store",
             {sizeof(std::uint64_t), sizeof(std::uint64_t)},
             views,
             [](const emulator::KernelCall& call) {
               Accesses(call).store<Form{.type = Type::u64}>(0, 0, std::array{call.arguments.get<std::uint64_t>(1)});
               return emulator::KernelProgress::done;
             }},
            {"mc_sum", {sizeof(std::uint64_t), sizeof(std::uint64_t)}, views, [](const emulator::KernelCall& call) {
               last_sum() = Accesses(call).load_reduce<Form{.type = Type::u64}, std::uint64_t>(0, 0)[0];
               return emulator::KernelProgress::done;
             }}};
  }
  static std::uint64_t& last_sum() {
    static std::uint64_t sum = 0;
    return sum;
  }

  // Makes a device's primary context current.
  Outcome use(const Words& words) {
    CUcontext context = nullptr;
    int code = driver_->cuDevicePrimaryCtxRetain(&context, device(words.at(1)));
    if (code == 0) code = driver_->cuCtxSetCurrent(context);
    return {code, {}, {}};
  }

  Outcome launch(const std::string& name, std::array<std::uint64_t, 2> arguments) {
    const std::string image = ".version 8.0\n.visible .entry " + name + "()\n";
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    void* parameters[] = {&arguments[0], &arguments[1]};
    int code = driver_->cuModuleLoadData(&module, image.c_str());
    if (code == 0) code = driver_->cuModuleGetFunction(&function, module, name.c_str());
    if (code == 0) code = driver_->cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
    return {code == 0 ? driver_->cuCtxSynchronize() : code, {}, {}};
  }

  Outcome sum_multicast(CUdeviceptr address) {
    Outcome outcome = launch("mc_sum", {address, 0});
    outcome.text = std::to_string(last_sum());
    return outcome;
  }

  // mc-create DEVICES BYTES HANDLE_TYPES
  Outcome create_multicast(const Words& words) {
    const CUmulticastObjectProp properties{static_cast<unsigned>(number(words.at(1))), number(words.at(2)),
                                           number(words.at(3)), 0};
    CUmemGenericAllocationHandle handle = 0;
    const int code = driver_->cuMulticastCreate(&handle, &properties);
    return {code, std::to_string(handle), {}};
  }

  // mc-bind OBJECT MEMORY OFFSET BYTES
  Outcome bind_multicast(const Words& words) {
    return {driver_->cuMulticastBindMem(number(words.at(1)), number(words.at(3)), number(words.at(2)), 0,
                                        number(words.at(4)), 0),
            {},
            {}};
  }

  // mc-unbind OBJECT DEVICE OFFSET BYTES
  Outcome unbind_multicast(const Words& words) {
    return {
        driver_->cuMulticastUnbind(number(words.at(1)), device(words.at(2)), number(words.at(3)), number(words.at(4))),
        {},
        {}};
  }

  Outcome init() {
    try {
      emulator::Configuration configuration = emulator::Configuration::of_program();
      configuration.kernels = kernels();
      driver_ = emulator::make_emulated_driver(configuration);
    } catch (const std::exception& error) {
      return {-1, error.what(), {}};
    }
    CUcontext context = nullptr;
    int code = driver_->cuInit(0);
    if (code == 0) code = driver_->cuDevicePrimaryCtxRetain(&context, 0);
    if (code == 0) code = driver_->cuCtxSetCurrent(context);
    return {code, {}, {}};
  }

  // create BYTES HANDLE_TYPES [LOCATION_TYPE [DEVICE]]
  Outcome create(const Words& words) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {
        words.size() > 3 ? static_cast<CUmemLocationType>(number(words[3])) : CU_MEM_LOCATION_TYPE_DEVICE,
        words.size() > 4 ? device(words[4]) : 0};
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(number(words.at(2)));
    CUmemGenericAllocationHandle handle = 0;
    const int code = driver_->cuMemCreate(&handle, number(words.at(1)), &properties, 0);
    return {code, std::to_string(handle), {}};
  }

  // map HANDLE BYTES [DEVICE]: at new addresses, open to device 0 or that one, and to the host where that can be
  Outcome map(const Words& words) {
    const std::uint64_t bytes = number(words.at(2));
    CUdeviceptr address = 0;
    int code = driver_->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (code == 0) code = driver_->cuMemMap(address, bytes, 0, number(words.at(1)), 0);
    const CUmemAccessDesc device_access{{CU_MEM_LOCATION_TYPE_DEVICE, words.size() > 3 ? device(words[3]) : 0},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (code == 0) code = driver_->cuMemSetAccess(address, bytes, &device_access, 1);
    if (code == 0) static_cast<void>(driver_->cuMemSetAccess(address, bytes, &host, 1));
    return {code, std::to_string(address), {}};
  }

  Outcome write(const Words& words) {
    const int code = driver_->cuMemsetD8(number(words.at(1)), byte(words.at(2)), number(words.at(3)));
    return {code == 0 ? driver_->cuCtxSynchronize() : code, {}, {}};
  }

  Outcome read(CUdeviceptr address) {
    unsigned char value = 0;
    const int code = driver_->cuMemcpyDtoH(&value, address, 1);
    return {code, std::to_string(value), {}};
  }

  // What the process's own code does with host memory.
  static Outcome touch(CUdeviceptr address, unsigned char value) {
    *reinterpret_cast<volatile unsigned char*>(address) = value;
    return {};
  }

  static Outcome look(CUdeviceptr address) {
    return {0, std::to_string(*reinterpret_cast<const volatile unsigned char*>(address)), {}};
  }

  Outcome export_descriptor(const Words& words) {
    int descriptor = -1;
    const int code = driver_->cuMemExportToShareableHandle(&descriptor, number(words.at(1)), descriptor_type, 0);
    return {code, std::to_string(descriptor), emulator::memory::FileDescriptor(descriptor)};
  }

  Outcome import(void* os_handle) {
    CUmemGenericAllocationHandle handle = 0;
    const int code = driver_->cuMemImportFromShareableHandle(&handle, os_handle, descriptor_type);
    return {code, std::to_string(handle), {}};
  }

  Outcome export_fabric(const Words& words) {
    CUmemFabricHandle shareable{};
    const int code =
        driver_->cuMemExportToShareableHandle(&shareable, number(words.at(1)), CU_MEM_HANDLE_TYPE_FABRIC, 0);
    return {code, as_hexadecimal(shareable), {}};
  }

  Outcome import_fabric(const Words& words) {
    auto shareable = from_hexadecimal<CUmemFabricHandle>(words.at(1));
    CUmemGenericAllocationHandle handle = 0;
    const int code = driver_->cuMemImportFromShareableHandle(&handle, &shareable, CU_MEM_HANDLE_TYPE_FABRIC);
    return {code, std::to_string(handle), {}};
  }

  Outcome allocate(const Words& words) {
    CUdeviceptr address = 0;
    const int code = driver_->cuMemAlloc(&address, number(words.at(1)));
    return {code, std::to_string(address), {}};
  }

  Outcome allocate_pooled(const Words& words) {
    CUdeviceptr address = 0;
    const int code = driver_->cuMemAllocAsync(&address, number(words.at(1)), nullptr);
    return {code, std::to_string(address), {}};
  }

  // And waits until the pool has given back what it does not use.
  Outcome free_pooled(const Words& words) {
    const int code = driver_->cuMemFreeAsync(number(words.at(1)), nullptr);
    return {code == 0 ? driver_->cuCtxSynchronize() : code, {}, {}};
  }

  static CUmemoryPool pool(const std::string& word) { return reinterpret_cast<CUmemoryPool>(number(word)); }
  static std::string told(CUmemoryPool pool) { return std::to_string(reinterpret_cast<std::uintptr_t>(pool)); }

  // pool-create [LOCATION_TYPE]: one that can be shared
  Outcome create_pool(const Words& words) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = descriptor_type;
    properties.location = {
        words.size() > 1 ? static_cast<CUmemLocationType>(number(words[1])) : CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool made = nullptr;
    const int code = driver_->cuMemPoolCreate(&made, &properties);
    return {code, told(made), {}};
  }

  Outcome export_pool(const Words& words) {
    int descriptor = -1;
    const int code = driver_->cuMemPoolExportToShareableHandle(&descriptor, pool(words.at(1)), descriptor_type, 0);
    return {code, std::to_string(descriptor), emulator::memory::FileDescriptor(descriptor)};
  }

  Outcome import_pool(void* os_handle) {
    CUmemoryPool made = nullptr;
    const int code = driver_->cuMemPoolImportFromShareableHandle(&made, os_handle, descriptor_type, 0);
    return {code, told(made), {}};
  }

  Outcome allocate_from_pool(const Words& words) {
    CUdeviceptr address = 0;
    const int code = driver_->cuMemAllocFromPoolAsync(&address, number(words.at(2)), pool(words.at(1)), nullptr);
    return {code == 0 ? driver_->cuCtxSynchronize() : code, std::to_string(address), {}};
  }

  Outcome export_pointer(const Words& words) {
    CUmemPoolPtrExportData data{};
    const int code = driver_->cuMemPoolExportPointer(&data, number(words.at(1)));
    return {code, as_hexadecimal(data), {}};
  }

  Outcome import_pointer(const Words& words) {
    auto data = from_hexadecimal<CUmemPoolPtrExportData>(words.at(2));
    CUdeviceptr address = 0;
    const int code = driver_->cuMemPoolImportPointer(&address, pool(words.at(1)), &data);
    return {code, std::to_string(address), {}};
  }

  // Bytes reserved and used now.
  Outcome numbers_of_pool(const Words& words) {
    std::uint64_t reserved = 0, used = 0;
    int code = driver_->cuMemPoolGetAttribute(pool(words.at(1)), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (code == 0) code = driver_->cuMemPoolGetAttribute(pool(words.at(1)), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    return {code, std::to_string(reserved) + "/" + std::to_string(used), {}};
  }

  Outcome ipc_get(const Words& words) {
    CUipcMemHandle handle{};
    const int code = driver_->cuIpcGetMemHandle(&handle, number(words.at(1)));
    return {code, as_hexadecimal(handle), {}};
  }

  Outcome ipc_open(const Words& words) {
    CUdeviceptr address = 0;
    const int code = driver_->cuIpcOpenMemHandle(&address, from_hexadecimal<CUipcMemHandle>(words.at(1)), 1);
    return {code, std::to_string(address), {}};
  }

  Outcome info() {
    std::size_t free = 0, total = 0;
    const int code = driver_->cuMemGetInfo(&free, &total);
    return {code, std::to_string(free), {}};
  }

  Outcome devices() {
    int count = 0;
    const int code = driver_->cuDeviceGetCount(&count);
    return {code, std::to_string(count), {}};
  }

  // fork: a child that lives on; fork raw: one that is made without the handlers of fork(), and so has the connection;
  // fork touch ADDRESS: one that tries to write there. Answers its process id, or how it ended.
  Outcome leave_child(const Words& words) {
    const std::string how = words.size() > 1 ? words[1] : "";
    const auto child =
        how == "raw" ? static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0)) : ::fork();
    if (child == 0) {
      std::signal(SIGSEGV, SIG_DFL);
      ::close(control);
      ::alarm(600);  // whatever becomes of the test
      if (how == "touch") {
        touch(number(words.at(2)), 99);
        ::_exit(0);
      }
      for (;;) ::pause();
    }
    if (how != "touch") return {0, std::to_string(child), {}};
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFSIGNALED(status) ? WTERMSIG(status) : 0, {}, {}};
  }

  std::shared_ptr<driver::Interface> driver_;
};

int act() {
  Actor actor;
  while (const auto message = receive_message(control)) {
    std::istringstream line(message->text);
    Words words;
    for (std::string word; line >> word;) words.push_back(word);
    const Outcome outcome = actor.perform(words, message->descriptor.get());
    if (!send_message(control, std::to_string(outcome.code) + ' ' + outcome.text, outcome.descriptor.get())) break;
  }
  return 0;
}

}  // namespace
}  // namespace cuvmm::tests

int main() {
  return cuvmm::tests::act();
}
