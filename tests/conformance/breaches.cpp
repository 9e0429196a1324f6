#include "conformance/breaches.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <stdexcept>

#include "emulator/emulated_driver.hpp"
#include "emulator/multimem.hpp"

namespace cuvmm::conformance {

namespace {

using namespace abi;
using emulator::Configuration;
using emulator::HostKernel;
using emulator::KernelArguments;
using emulator::KernelCall;
using emulator::KernelProgress;
using emulator::KernelView;
using emulator::Rule;

constexpr std::size_t granule = std::size_t{2} << 20;

void expect(CUresult code) {
  if (code != CUDA_SUCCESS) throw std::runtime_error("the breach could not be prepared");
}

CUmemGenericAllocationHandle create(driver::Interface& driver, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = type;
  CUmemGenericAllocationHandle handle = 0;
  expect(driver.cuMemCreate(&handle, granule, &properties, 0));
  return handle;
}

CUdeviceptr mapped(driver::Interface& driver) {
  CUdeviceptr address = 0;
  expect(driver.cuMemAddressReserve(&address, granule, 0, 0, 0));
  expect(driver.cuMemMap(address, granule, 0, create(driver, CU_MEM_HANDLE_TYPE_NONE), 0));
  return address;
}

CUresult grant(driver::Interface& driver, CUdeviceptr address) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver.cuMemSetAccess(address, granule, &access, 1);
}

CUstream stream(driver::Interface& driver) {
  CUstream made = nullptr;
  expect(driver.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

// A stream whose work waits for what nobody does.
CUstream held_stream(driver::Interface& driver) {
  void* word = nullptr;
  expect(driver.cuMemHostAlloc(&word, 4096, 0));
  *static_cast<unsigned*>(word) = 0;
  CUstream made = stream(driver);
  expect(driver.cuStreamWaitValue32(made, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  return made;
}

HostKernel kernel(std::function<std::vector<KernelView>(const KernelArguments&)> views, std::function<void()> body) {
  return {"body", {}, std::move(views), [body = std::move(body)](const KernelCall&) {
            body();
            return KernelProgress::done;
          }};
}

CUresult launch(driver::Interface& driver) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  expect(driver.cuModuleLoadData(&module, ".version 8.0\n.visible .entry body()\n"));
  expect(driver.cuModuleGetFunction(&function, module, "body"));
  return driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

void as_it_is(Configuration&) {}

CUresult call_after_fork(const DriverPointer& driver) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(driver->cuCtxSynchronize());
  int status = 0;
  ::waitpid(child, &status, 0);
  return static_cast<CUresult>(WEXITSTATUS(status));
}

CUresult reserve(const DriverPointer& driver) {
  CUdeviceptr address = 0;
  return driver->cuMemAddressReserve(&address, granule, 0, 0, 0);
}

CUresult unmap_in_use(const DriverPointer& driver) {
  const CUdeviceptr address = mapped(*driver);
  expect(grant(*driver, address));
  expect(driver->cuMemsetD8Async(address, 1, 64, held_stream(*driver)));
  return driver->cuMemUnmap(address, granule);
}

CUresult export_once(const DriverPointer& driver) {
  int descriptor = -1;
  return driver->cuMemExportToShareableHandle(&descriptor, create(*driver, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult open_foreign_ipc_handle(const DriverPointer& driver) {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};
  expect(driver->cuMemAlloc(&address, 64));
  const pid_t child = ::getpid();
  expect(driver->cuIpcGetMemHandle(&handle, address));
  for (std::size_t at = 0; at + sizeof child <= sizeof handle.reserved; at += sizeof child)
    if (std::equal(handle.reserved + at, handle.reserved + at + sizeof child, reinterpret_cast<const char*>(&child)))
      handle.reserved[at] ^= 1;
  constexpr unsigned lazy_peer_access = 1;
  return driver->cuIpcOpenMemHandle(&address, handle, lazy_peer_access);
}

CUresult export_compressible_memory(const DriverPointer& driver) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  expect(driver->cuMemCreate(&handle, granule, &properties, 0));
  expect(driver->cuMemAddressReserve(&address, granule, 0, 0, 0));
  expect(driver->cuMemMap(address, granule, 0, handle, 0));
  int descriptor = -1;
  return driver->cuMemGetHandleForAddressRange(&descriptor, address, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

CUresult close_what_was_not_opened(const DriverPointer& driver) {
  CUdeviceptr address = 0;
  expect(driver->cuMemAlloc(&address, 64));
  return driver->cuIpcCloseMemHandle(address);
}

CUresult write_where_no_file_may_grow(const DriverPointer& driver) {
  const CUdeviceptr address = mapped(*driver);
  expect(grant(*driver, address));
  const rlimit nothing{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &nothing);
  std::signal(SIGXFSZ, SIG_IGN);
  return driver->cuMemsetD8(address, 1, 64);
}

// What the call in the kernel answered.
CUresult& answer_in_kernel() {
  static CUresult answer = CUDA_SUCCESS;
  return answer;
}

driver::Interface*& driver_of_kernel() {
  static driver::Interface* driver = nullptr;
  return driver;
}

CUresult call_in_a_kernel(const DriverPointer& driver) {
  driver_of_kernel() = driver.get();
  expect(launch(*driver));
  expect(driver->cuCtxSynchronize());
  return answer_in_kernel();
}

CUresult query_a_destroyed_stream(const DriverPointer& driver) {
  const CUstream gone = stream(*driver);
  expect(driver->cuStreamDestroy(gone));
  return driver->cuStreamQuery(gone);
}

CUresult instantiate_while_captured(const DriverPointer& driver) {
  const CUstream captured = stream(*driver);
  expect(driver->cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  expect(driver->cuStreamGetCaptureInfo(captured, &status, nullptr, &graph, nullptr, nullptr));
  CUgraphExec exec = nullptr;
  return driver->cuGraphInstantiateWithFlags(&exec, graph, 0);
}

// On the emulated driver alone, as all breaches: on a real one multicast can put devices out of service.
CUresult create_multicast(const DriverPointer& driver) {
  if (!driver->emulated()) throw std::logic_error("multicast is for the emulated driver alone");
  CUmulticastObjectProp properties{};
  properties.numDevices = 1;
  properties.size = granule;
  CUmemGenericAllocationHandle handle = 0;
  return driver->cuMulticastCreate(&handle, &properties);
}

// Multicast, on the emulated driver alone.
void with_multicast(Configuration& configuration) {
  configuration.profile = *emulator::find_profile("h200-multicast");
}

void strict_with_multicast(Configuration& configuration) {
  with_multicast(configuration);
  configuration.mode = emulator::Mode::strict;
}

CUmemGenericAllocationHandle multicast_object(driver::Interface& driver, unsigned devices,
                                              unsigned long long handle_types = 0) {
  if (!driver.emulated()) throw std::logic_error("multicast is for the emulated driver alone");
  const CUmulticastObjectProp properties{devices, granule, handle_types, 0};
  CUmemGenericAllocationHandle handle = 0;
  expect(driver.cuMulticastCreate(&handle, &properties));
  return handle;
}

// One device's, complete.
CUmemGenericAllocationHandle multicast_team(driver::Interface& driver, unsigned long long handle_types = 0) {
  const CUmemGenericAllocationHandle object = multicast_object(driver, 1, handle_types);
  expect(driver.cuMulticastAddDevice(object, 0));
  return object;
}

CUresult bind(driver::Interface& driver, CUmemGenericAllocationHandle object, std::size_t bytes = granule) {
  return driver.cuMulticastBindMem(object, 0, create(driver, CU_MEM_HANDLE_TYPE_NONE), 0, bytes, 0);
}

CUdeviceptr mapped_multicast(driver::Interface& driver, CUmemGenericAllocationHandle object) {
  CUdeviceptr address = 0;
  expect(driver.cuMemAddressReserve(&address, granule, 0, 0, 0));
  expect(driver.cuMemMap(address, granule, 0, object, 0));
  return address;
}

CUresult create_with(const DriverPointer& driver, CUmulticastObjectProp properties) {
  if (!driver->emulated()) throw std::logic_error("multicast is for the emulated driver alone");
  CUmemGenericAllocationHandle handle = 0;
  return driver->cuMulticastCreate(&handle, &properties);
}

CUresult bind_memory_of_another_device(const DriverPointer& driver) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle memory = 0;
  expect(driver->cuMemCreate(&memory, granule, &properties, 0));
  return driver->cuMulticastBindMem(multicast_team(*driver), 0, memory, 0, granule, 0);
}

CUresult bind_twice(const DriverPointer& driver) {
  const CUmemGenericAllocationHandle object = multicast_team(*driver);
  expect(bind(*driver, object));
  return bind(*driver, object);
}

CUresult unbind_while_mapped(const DriverPointer& driver) {
  const CUmemGenericAllocationHandle object = multicast_team(*driver);
  expect(bind(*driver, object));
  (void)mapped_multicast(*driver, object);
  return driver->cuMulticastUnbind(object, 0, 0, granule);
}

CUresult free_what_is_bound(const DriverPointer& driver) {
  const CUmemGenericAllocationHandle memory = create(*driver, CU_MEM_HANDLE_TYPE_NONE);
  expect(driver->cuMulticastBindMem(multicast_team(*driver), 0, memory, 0, granule, 0));
  return driver->cuMemRelease(memory);
}

CUresult import_what_is_gone(const DriverPointer& driver) {
  CUmemGenericAllocationHandle object = multicast_team(*driver, CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemFabricHandle handle{};
  expect(driver->cuMemExportToShareableHandle(&handle, object, CU_MEM_HANDLE_TYPE_FABRIC, 0));
  expect(driver->cuMemRelease(object));
  return driver->cuMemImportFromShareableHandle(&object, &handle, CU_MEM_HANDLE_TYPE_FABRIC);
}

CUresult grant_outside_the_team(const DriverPointer& driver) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver->cuMemSetAccess(mapped_multicast(*driver, multicast_team(*driver)), granule, &access, 1);
}

CUresult copy_to_multicast(const DriverPointer& driver) {
  const CUmemGenericAllocationHandle object = multicast_team(*driver);
  expect(bind(*driver, object));
  const CUdeviceptr address = mapped_multicast(*driver, object);
  expect(grant(*driver, address));
  const unsigned char byte = 1;
  return driver->cuMemcpyHtoD(address, &byte, 1);
}

CUdeviceptr& address_of_kernel() {
  static CUdeviceptr address = 0;
  return address;
}

CUdeviceptr& multicast_of_kernel() {
  static CUdeviceptr address = 0;
  return address;
}

// Launches a kernel that touches `multicast_of_kernel()` by multimem, and `address_of_kernel()`.
CUresult launch_and_wait(const DriverPointer& driver) {
  expect(launch(*driver));
  return driver->cuCtxSynchronize();
}

CUresult multimem_at_ordinary_memory(const DriverPointer& driver) {
  address_of_kernel() = multicast_of_kernel() = mapped(*driver);
  expect(grant(*driver, address_of_kernel()));
  return launch_and_wait(driver);
}

CUresult count_and_look(const DriverPointer& driver) {
  const CUmemGenericAllocationHandle object = multicast_team(*driver);
  address_of_kernel() = mapped(*driver);
  expect(driver->cuMulticastBindAddr(object, 0, address_of_kernel(), granule, 0));
  multicast_of_kernel() = mapped_multicast(*driver, object);
  expect(grant(*driver, address_of_kernel()));
  expect(grant(*driver, multicast_of_kernel()));
  return launch_and_wait(driver);
}

HostKernel counting_kernel() {
  using emulator::multimem::Form;
  return {"body",
          {},
          [](const KernelArguments&) {
            return std::vector<KernelView>{{multicast_of_kernel(), 4, true, 4, true},
                                           {address_of_kernel(), 4, false, 4, false}};
          },
          [](const KernelCall& call) {
            const emulator::multimem::Accesses memory(call);
            constexpr Form add{emulator::multimem::Instruction::reduce, emulator::multimem::Type::u32};
            memory.reduce<add>(0, 0, std::array{1U});
            (void)memory.load<std::uint32_t>(1, 0);
            return KernelProgress::done;
          }};
}

std::map<Rule, Breach> multicast_breaches() {
  const auto two_devices = [](Configuration& c) {
    with_multicast(c);
    c.devices = 2;
  };
  return {
      {Rule::multicast_properties,
       {with_multicast,
        [](const DriverPointer& driver) {
          return create_with(driver, {0, granule, 0, 0});
        }}},
      {Rule::multicast_size,
       {with_multicast,
        [](const DriverPointer& driver) {
          return create_with(driver, {1, granule + 4096, 0, 0});
        }}},
      {Rule::multicast_handle,
       {with_multicast,
        [](const DriverPointer& driver) {
          return driver->cuMulticastAddDevice(create(*driver, CU_MEM_HANDLE_TYPE_NONE), 0);
        }}},
      {Rule::multicast_join,
       {with_multicast,
        [](const DriverPointer& driver) { return driver->cuMulticastAddDevice(multicast_team(*driver), 0); }}},
      {Rule::multicast_reach,
       {[two_devices](Configuration& c) {
          two_devices(c);
          c.peer_access = false;
        },
        [](const DriverPointer& driver) {
          const CUmemGenericAllocationHandle object = multicast_object(*driver, 2);
          expect(driver->cuMulticastAddDevice(object, 0));
          return driver->cuMulticastAddDevice(object, 1);
        }}},
      {Rule::multicast_team_complete,
       {[two_devices](Configuration& c) {
          two_devices(c);
          c.multicast_wait = 100;  // for programs with more threads than they know of
        },
        [](const DriverPointer& driver) { return bind(*driver, multicast_object(*driver, 2)); }}},
      {Rule::multicast_bind_range,
       {with_multicast, [](const DriverPointer& driver) { return bind(*driver, multicast_team(*driver), 4096); }}},
      {Rule::multicast_bind_once, {with_multicast, bind_twice}},
      {Rule::multicast_bind_memory, {two_devices, bind_memory_of_another_device}},
      {Rule::multicast_bind_shareable,
       {with_multicast,
        [](const DriverPointer& driver) {
          return bind(*driver, multicast_team(*driver, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        }}},
      {Rule::multicast_slots,
       {[](Configuration& c) {
          with_multicast(c);
          c.multicast_slots = 0;
        },
        [](const DriverPointer& driver) { return bind(*driver, multicast_team(*driver)); }}},
      {Rule::multicast_unbind_exact,
       {with_multicast,
        [](const DriverPointer& driver) { return driver->cuMulticastUnbind(multicast_team(*driver), 0, 0, granule); }}},
      {Rule::multicast_unbind_unmapped, {strict_with_multicast, unbind_while_mapped}},
      {Rule::multicast_unbind_first, {strict_with_multicast, free_what_is_bound}},
      {Rule::multicast_kept,
       {[](Configuration& c) {
          strict_with_multicast(c);
          c.imex_channels = 1;
        },
        import_what_is_gone}},
      {Rule::multicast_grant, {two_devices, grant_outside_the_team}},
      {Rule::multicast_multimem_only, {with_multicast, copy_to_multicast}},
      {Rule::multimem_address,
       {[](Configuration& c) {
          with_multicast(c);
          c.kernels = {counting_kernel()};
        },
        multimem_at_ordinary_memory}},
      {Rule::alias_fence,
       {[](Configuration& c) {
          strict_with_multicast(c);
          c.kernels = {counting_kernel()};
        },
        count_and_look}},
  };
}

std::map<Rule, Breach> make_breaches() {
  const auto no_views = [](const KernelArguments&) { return std::vector<KernelView>{}; };
  return {
      {Rule::not_after_fork, {as_it_is, call_after_fork}},
      {Rule::vmm_supported, {[](Configuration& c) { c.profile = *emulator::find_profile("no-vmm"); }, reserve}},
      {Rule::unmap_not_in_use, {[](Configuration& c) { c.mode = emulator::Mode::strict; }, unmap_in_use}},
      {Rule::descriptor_limit, {[](Configuration& c) { c.descriptor_limit = 0; }, export_once}},
      {Rule::rights_on_behaviour,
       {[](Configuration& c) { c.profile.behaviour.fail_set_access = true; },
        [](const DriverPointer& driver) { return grant(*driver, mapped(*driver)); }}},
      {Rule::ipc_private_machine, {as_it_is, open_foreign_ipc_handle}},
      {Rule::dma_buf_compressible, {as_it_is, export_compressible_memory}},
      {Rule::ipc_open, {as_it_is, close_what_was_not_opened}},
      {Rule::operating_system, {as_it_is, write_where_no_file_may_grow}},
      {Rule::callback_throws,
       {[](Configuration& c) {
          c.kernels = {
              kernel([](const KernelArguments&) -> std::vector<KernelView> { throw std::runtime_error("no"); }, [] {})};
        },
        [](const DriverPointer& driver) { return launch(*driver); }}},
      {Rule::host_kernel,
       {[no_views](Configuration& c) {
          c.kernels = {kernel(no_views, [] {
            CUdeviceptr address = 0;
            answer_in_kernel() = driver_of_kernel()->cuMemAlloc(&address, 64);
          })};
        },
        call_in_a_kernel}},
      {Rule::stream_live, {as_it_is, query_a_destroyed_stream}},
      {Rule::graph_finished, {as_it_is, instantiate_while_captured}},
      {Rule::multicast_supported, {as_it_is, create_multicast}},
  };
}

std::string outcome(const Breach& breach, std::string_view rule_off) {
  Configuration configuration;
  configuration.on_warning = [](const std::string&) {};
  breach.configure(configuration);
  if (!rule_off.empty()) configuration.rules_off.emplace_back(rule_off);
  const DriverPointer driver = emulator::make_emulated_driver(configuration);
  expect(driver->cuInit(0));
  CUcontext context = nullptr;
  expect(driver->cuDevicePrimaryCtxRetain(&context, 0));
  expect(driver->cuCtxSetCurrent(context));
  return breach.break_rule(driver) == CUDA_SUCCESS ? "accepted" : "refused";
}

}  // namespace

const std::map<Rule, Breach>& breaches() {
  static const std::map<Rule, Breach> all = [] {
    std::map<Rule, Breach> both = make_breaches();
    both.merge(multicast_breaches());
    return both;
  }();
  return all;
}

std::string run_breach(const Breach& breach, std::string_view rule_off) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::alarm(120);
    std::string said;
    try {
      said = outcome(breach, rule_off);
    } catch (const std::exception& error) {
      said = error.what();
    }
    ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  char said[200];
  const ssize_t length = ::read(ends[0], said, sizeof said);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return length > 0 ? std::string(said, static_cast<std::size_t>(length)) : "the process died";
}

}  // namespace cuvmm::conformance
