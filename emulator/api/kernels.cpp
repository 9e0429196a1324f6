// Modules and launches: kernels are host functions found by name.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "emulator/api/answering.hpp"
#include "emulator/api/block_launch.hpp"
#include "emulator/api/watched_launch.hpp"
#include "emulator/kernels/module_image.hpp"
#include "emulator/multimem.hpp"

namespace cuvmm::emulator::api {
namespace {

using execution::Operation;
using execution::OperationKind;
using execution::Outcome;

// The marks of cuLaunchKernel's `extra` (CU_LAUNCH_PARAM_*).
void* const launch_parameter_end = nullptr;
void* const launch_parameter_buffer_pointer = reinterpret_cast<void*>(1);
void* const launch_parameter_buffer_size = reinterpret_cast<void*>(2);

// Arguments as cuLaunchKernel's `extra` gives them: one buffer with every argument at a multiple of its size.
std::optional<KernelArguments> unpack_arguments(const HostKernel& kernel, void** extra) {
  const char* buffer = nullptr;
  const std::size_t* size = nullptr;
  for (; *extra != launch_parameter_end; extra += 2) {
    if (*extra == launch_parameter_buffer_pointer)
      buffer = static_cast<const char*>(extra[1]);
    else if (*extra == launch_parameter_buffer_size)
      size = static_cast<const std::size_t*>(extra[1]);
    else
      return std::nullopt;
  }
  if (buffer == nullptr || size == nullptr) return std::nullopt;
  std::vector<std::size_t> offsets;
  std::vector<std::byte> bytes;
  std::size_t at = 0;
  for (const std::size_t argument : kernel.argument_bytes) {
    at = (at + argument - 1) / argument * argument;
    if (at + argument > *size) return std::nullopt;
    offsets.push_back(bytes.size());
    bytes.resize(bytes.size() + argument);
    std::memcpy(bytes.data() + offsets.back(), buffer + at, argument);
    at += argument;
  }
  return KernelArguments(std::move(offsets), std::move(bytes));
}

KernelArguments copy_arguments(const HostKernel& kernel, void** parameters) {
  std::vector<std::size_t> offsets;
  std::vector<std::byte> bytes;
  for (std::size_t index = 0; index < kernel.argument_bytes.size(); ++index) {
    const std::size_t size = kernel.argument_bytes[index];
    offsets.push_back(bytes.size());
    bytes.resize(bytes.size() + size);
    std::memcpy(bytes.data() + offsets.back(), parameters[index], size);
  }
  return {std::move(offsets), std::move(bytes)};
}

PtxLimits ptx_limits(const Profile& profile) {
  PtxLimits limits;  // the version is the driver's, which all profiles share
  limits.target = static_cast<unsigned>(10 * profile.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                                        profile.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return limits;
}

Answer take_arguments(const HostKernel& kernel, void** parameters, void** extra,
                      std::optional<KernelArguments>& arguments) {
  const auto refused = [](std::string why) {
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, std::move(why));
  };
  if (parameters != nullptr && extra != nullptr) return refused("kernelParams and extra exclude each other");
  if (extra != nullptr) {
    arguments = unpack_arguments(kernel, extra);
    return arguments ? Answer() : refused("extra does not hold a buffer that is large enough for the arguments");
  }
  for (std::size_t index = 0; index < kernel.argument_bytes.size(); ++index)
    if (parameters == nullptr || parameters[index] == nullptr)
      return refused(fmt::format("kernelParams lacks argument {}", index));
  arguments = copy_arguments(kernel, parameters);
  return {};
}

Answer check_shape(const KernelShape& shape, const Profile& profile) {
  const auto limit = [&](CUdevice_attribute attribute) { return static_cast<unsigned>(profile.attribute(attribute)); };
  const unsigned block_limits[] = {limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                                   limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                                   limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  const unsigned grid_limits[] = {limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                                  limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  unsigned long long threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    threads *= shape.block[axis];
    if (shape.block[axis] == 0 || shape.block[axis] > block_limits[axis] || shape.grid[axis] == 0 ||
        shape.grid[axis] > grid_limits[axis])
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("grid {} x {} x {}, block {} x {} x {}", shape.grid[0], shape.grid[1], shape.grid[2],
                          shape.block[0], shape.block[1], shape.block[2])};
  }
  if (threads > limit(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("{} threads a block", threads)};
  if (shape.shared_memory_bytes > limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK))
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("{} bytes of shared memory a block", shape.shared_memory_bytes)};
  return {};
}

}  // namespace

CUresult EmulatedDriver::cuModuleLoadData(CUmodule* module, const void* image) {
  return with_context([&](const ActiveContext& context) -> Answer {
    if (module == nullptr || image == nullptr)
      return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "module and image must not be null"};
    auto names = kernel_names_in(image);
    if (!names)
      return {CUDA_ERROR_INVALID_IMAGE, Rule::kernel_known,
              "the image is neither PTX text nor a fatbin that holds some"};
    if (const CUresult bad = check_ptx(image, ptx_limits(machine_.configuration().profile)); bad != CUDA_SUCCESS)
      return {bad, Rule::argument_valid, "the PTX text is incomplete, or newer than the device and its driver"};
    *module = modules_.add(std::make_shared<Module>(Module{context.id, std::move(*names)}));
    return give_owner(context, {});
  });
}

CUresult EmulatedDriver::cuModuleUnload(CUmodule module) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_not_failed(); !refused.ok()) return refused;
    if (modules_.take(module) == nullptr)
      return {CUDA_ERROR_INVALID_HANDLE, Rule::argument_valid, fmt::format("{} is no module", fmt::ptr(module))};
    forget_functions();
    return {};
  });
}

// Functions go with their modules.
void EmulatedDriver::forget_functions() {
  functions_.take_all_if([](const Function& function) { return function.module.expired(); });
}

CUresult EmulatedDriver::cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_not_failed(); !refused.ok()) return refused;
    const auto found = modules_.find(module);
    if (found == nullptr)
      return {CUDA_ERROR_INVALID_HANDLE, Rule::argument_valid, fmt::format("{} is no module", fmt::ptr(module))};
    if (function == nullptr || name == nullptr || *name == '\0')
      return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "hfunc must not be null, name not empty"};
    if (std::find(found->kernel_names.begin(), found->kernel_names.end(), name) == found->kernel_names.end())
      return {CUDA_ERROR_NOT_FOUND, Rule::argument_valid, fmt::format("the module has no kernel {}", name)};
    auto kernel = kernels_.find(name);
    if (kernel == kernels_.end())
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::kernel_known, fmt::format("no host kernel is named {}", name)};
    *function = functions_.add(std::make_shared<Function>(Function{found, &kernel->second}));
    return {};
  });
}

CUresult EmulatedDriver::cuLaunchKernel(CUfunction function, unsigned int grid_dim_x, unsigned int grid_dim_y,
                                        unsigned int grid_dim_z, unsigned int block_dim_x, unsigned int block_dim_y,
                                        unsigned int block_dim_z, unsigned int shared_mem_bytes, CUstream stream,
                                        void** kernel_params, void** extra) {
  return initialised([&]() -> Answer {
    // A current context must be the function's; none is as good, for a function and a stream that have one.
    if (Answer refused = check_not_failed(); !refused.ok()) return refused;
    const Context* current = contexts_.current();
    const auto found = functions_.find(function);
    if (found == nullptr)
      return {CUDA_ERROR_INVALID_HANDLE, Rule::argument_valid, fmt::format("{} is no function", fmt::ptr(function))};
    const auto module = found->module.lock();
    if (module == nullptr || (current != nullptr && module->context != contexts_.life_of(*current)))
      return {CUDA_ERROR_INVALID_HANDLE, Rule::context_current, "the function was loaded in another context"};
    const KernelShape shape{
        {grid_dim_x, grid_dim_y, grid_dim_z}, {block_dim_x, block_dim_y, block_dim_z}, shared_mem_bytes};
    if (Answer refused = check_shape(shape, machine_.configuration().profile); !refused.ok()) return refused;
    std::optional<KernelArguments> arguments;
    if (Answer refused = take_arguments(*found->kernel, kernel_params, extra, arguments); !refused.ok()) return refused;
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    if (module->context != contexts_.life_of(*entry.context))
      return {CUDA_ERROR_INVALID_HANDLE, Rule::context_current, "the stream belongs to another context"};
    return launch(entry, *found->kernel, shape, std::move(*arguments));
  });
}

Answer EmulatedDriver::launch(const StreamEntry& entry, const HostKernel& kernel, const KernelShape& shape,
                              KernelArguments arguments) {
  const std::vector<KernelView> views = kernel.views(arguments);
  Operation operation;
  operation.kind = OperationKind::kernel;
  operation.description = fmt::format("kernel {}", kernel.name);
  for (const KernelView& view : views) operation.touches.push_back({view.address, view.bytes, view.write});
  const auto who = model::Accessor::device(entry.context->device);
  if (kernel.run_block) {
    // Begun anew for each of a graph's launches, which are copies of one operation that was never run.
    operation.run = [this, &kernel, shape, arguments = std::move(arguments), who,
                     running = std::shared_ptr<BlockLaunch>()]() mutable {
      if (running == nullptr) running = std::make_shared<BlockLaunch>(machine_, kernel, shape, arguments, who);
      Outcome outcome = running->go_on();
      if (!outcome.unfinished()) running = nullptr;
      return outcome;
    };
    return engine_.submit(entry.stream, std::move(operation));
  }
  operation.run = [this, &kernel, shape, views, arguments = std::move(arguments), tries = std::uint64_t{0},
                   watched = std::shared_ptr<WatchedLaunch>(), who]() mutable {
    // What is watched goes with the launch: begun anew for each of a graph's, which are copies of one operation.
    if (tries == 0) watched = std::make_shared<WatchedLaunch>(machine_.aliases(), who.ordinal());
    Outcome outcome = run_kernel(kernel, shape, views, arguments, tries++, who, watched->launch());
    if (outcome.state != Outcome::State::again) watched = nullptr;
    return outcome;
  };
  return engine_.submit(entry.stream, std::move(operation));
}

// The bytes of one of a kernel's views, for as long as its function runs.
struct EmulatedDriver::OpenView {
  Access access;
  std::vector<memory::Window> windows;  // one, or one for each device of a team
  std::vector<std::byte*> replicas;
};

// Nothing if it was opened; else what the launch ends in.
std::optional<Outcome> EmulatedDriver::open_view(const HostKernel& kernel, const KernelView& view, model::Accessor who,
                                                 OpenView& opened) {
  if (view.bytes > 0) {
    if (view.alignment > 1 && view.address % view.alignment != 0)
      return Outcome::fault(CUDA_ERROR_MISALIGNED_ADDRESS, fmt::format("kernel {}: {:#x} is not a multiple of {}",
                                                                       kernel.name, view.address, view.alignment));
    const Answer answer =
        view.multimem ? machine_.access_multicast(view.address, view.bytes, who, view.write, opened.access)
                      : machine_.access(view.address, view.bytes, who, view.write, AddressKind::kernel, opened.access);
    const bool of_multicast = answer.rule == Rule::multicast_multimem_only || answer.rule == Rule::multimem_address;
    if (!answer.ok() && of_multicast && machine_.configuration().is_off(text(answer.rule).id)) return Outcome::done();
    if (!answer.ok())
      return Outcome::fault(CUDA_ERROR_ILLEGAL_ADDRESS, fmt::format("kernel {}: {}", kernel.name, answer.detail));
  }
  for (const std::vector<memory::Piece>& pieces : opened.access.replicas()) {
    opened.windows.emplace_back(pieces, view.write);
    opened.replicas.push_back(opened.windows.back().data());
  }
  if (!view.multimem) opened.windows.emplace_back(opened.access.pieces(), view.write);
  return std::nullopt;
}

bool EmulatedDriver::is_still_valid(const KernelView& view, model::Accessor who, const Access& access) {
  if (view.bytes == 0) return true;
  return view.multimem ? machine_.still_bound(view.address, view.bytes, who, view.write, access)
                       : machine_.still_valid(view.address, view.bytes, who, view.write, AddressKind::kernel, access);
}

Outcome EmulatedDriver::run_kernel(const HostKernel& kernel, const KernelShape& shape,
                                   const std::vector<KernelView>& views, const KernelArguments& arguments,
                                   std::uint64_t tries, model::Accessor who, std::uint64_t watched_as) {
  std::vector<OpenView> opened(views.size());
  std::vector<std::byte*> places;
  std::vector<MulticastWindow> multicasts;
  std::vector<const Access*> accesses;
  for (std::size_t index = 0; index < views.size(); ++index) {
    OpenView& one = opened[index];
    if (auto ended = open_view(kernel, views[index], who, one)) return *ended;
    places.push_back(views[index].multimem ? nullptr : one.windows.front().data());
    multicasts.push_back({one.replicas, views[index].bytes});
    accesses.push_back(&one.access);
  }
  WatchedViews watched(machine_.aliases(), watched_as, views, accesses);
  KernelProgress progress = KernelProgress::again;
  try {
    progress = kernel.run({arguments, shape, places, tries, multicasts, &watched});
  } catch (const std::bad_alloc& error) {  // the kernel's own: it has begun, so it is not tried again
    return Outcome::fault(CUDA_ERROR_LAUNCH_FAILED, error.what());
  } catch (const multimem::Fault& fault) {
    return Outcome::fault(
        fault.kind() == multimem::Fault::Kind::misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS,
        fmt::format("kernel {}: {}", kernel.name, fault.what()));
  }
  for (std::size_t index = 0; index < views.size(); ++index)
    if (!is_still_valid(views[index], who, opened[index].access))
      return Outcome::fault(CUDA_ERROR_ILLEGAL_ADDRESS,
                            fmt::format("kernel {}: memory was unmapped while it ran", kernel.name));
  if (const auto finding = watched.conclude())
    if (Answer refused = machine_.tolerated(Rule::alias_fence, *finding); !refused.ok())
      return Outcome::fault(CUDA_ERROR_LAUNCH_FAILED,
                            fmt::format("kernel {}: {}: {}", kernel.name, text(refused.rule).id, refused.detail));
  return progress == KernelProgress::done ? Outcome::done() : Outcome::again();
}

}  // namespace cuvmm::emulator::api
