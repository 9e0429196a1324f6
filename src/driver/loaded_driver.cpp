#include "driver/loaded_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "cuvmm/error.hpp"
#include "driver/multicast_switch.hpp"
#include "driver/result_names.hpp"
#include "driver/signature.hpp"

namespace cuvmm::driver {

namespace {

constexpr std::string_view emulator_hint =
    "To run without a GPU choose the emulated driver: CUVMM_DRIVER=emulated, or Driver::emulated";

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

[[noreturn]] void unavailable(const LoadOptions& options, std::string rule, std::string_view way_out,
                              CUresult result = CUDA_SUCCESS) {
  Failure failure;
  failure.kind = ErrorKind::driver_unavailable;
  failure.call = "load_driver";
  failure.arguments = fmt::format("library = \"{}\"", options.library);
  failure.rule = std::move(rule);
  failure.way_out = fmt::format("{}. {}", way_out, emulator_hint);
  if (result != CUDA_SUCCESS) {
    failure.code = result;
    failure.code_name = result_name(result);
  }
  raise(failure);
}

// Never closed: the driver starts threads and registers functions for the end of the process.
void* open_library(const LoadOptions& options) {
  void* const library = ::dlopen(options.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const reason = ::dlerror();
  unavailable(
      options,
      fmt::format("The CUDA driver library cannot be loaded: {}", reason != nullptr ? reason : "no reason given"),
      "Install the NVIDIA driver; in a container, start it with GPU access");
}

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// cuGetProcAddress in either of its forms.
class Lookup {
 public:
  Lookup(void* library, const LoadOptions& options)
      : second_form_(find<SecondForm>(library, "cuGetProcAddress_v2")),
        first_form_(find<FirstForm>(library, "cuGetProcAddress")) {
    if (second_form_ == nullptr && first_form_ == nullptr)
      unavailable(options, "The CUDA driver is too old: it has no cuGetProcAddress, which came with CUDA 11.3",
                  "Install an NVIDIA driver for CUDA 11.3 or later");
    const auto get_version = find<FunctionOf<EntryPoint::cuDriverGetVersion>>(library, "cuDriverGetVersion");
    const CUresult result = get_version == nullptr ? CUDA_ERROR_NOT_FOUND : get_version(&version_);
    if (result != CUDA_SUCCESS)
      unavailable(options, "The CUDA driver does not tell its version", "Check the installation of the NVIDIA driver",
                  result);
  }

  [[nodiscard]] int version() const noexcept { return version_; }

  // The function, or null if the driver has none of that name and version.
  [[nodiscard]] void* operator()(const EntryPointInfo& entry) const {
    if (entry.version > version_) return nullptr;
    constexpr unsigned long long default_flags = 0;
    void* function = nullptr;
    auto status = CU_GET_PROC_ADDRESS_SUCCESS;
    const std::string name(looked_up_name(entry));
    const CUresult result = second_form_ != nullptr
                                ? second_form_(name.c_str(), &function, entry.version, default_flags, &status)
                                : first_form_(name.c_str(), &function, entry.version, default_flags);
    return result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS ? function : nullptr;
  }

 private:
  using SecondForm = CUresult (*)(const char*, void**, int, unsigned long long, CUdriverProcAddressQueryResult*);
  using FirstForm = CUresult (*)(const char*, void**, int, unsigned long long);

  SecondForm second_form_;
  FirstForm first_form_;
  int version_ = 0;
};

class LoadedDriver;

// The calling thread's last call, if its entry point was missing.
struct LastMissing {
  const LoadedDriver* driver = nullptr;
  EntryPoint entry{};
};
thread_local LastMissing last_missing;

class LoadedDriver final : public Interface {
 public:
  explicit LoadedDriver(const LoadOptions& options)
      : library_(options.library), multicast_off_(why_multicast_is_off()) {
    void* const library = open_library(options);
    if (const auto marker = find<const char* (*)()>(library, "cuvmm_emulated_driver"); marker != nullptr)
      emulated_as_ = marker();
    place_ = find<const char* (*)(int*)>(library, "cuvmm_emulated_place");
    explanation_ = find<const char* (*)()>(library, "cuvmm_emulated_explanation");
    const Lookup lookup(library, options);
    version_ = lookup.version();
    for (const EntryPointInfo& entry : entry_points)
      if (entry.group != EntryPointGroup::multicast || multicast_off_.empty())
        functions_[static_cast<std::size_t>(entry.entry_point)] = lookup(entry);
    if (options.initialise) initialise(options);
  }

#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  CUresult name parameters override {                                  \
    return invoke<EntryPoint::name> arguments;                         \
  }
#include "driver/entry_points.def"

  [[nodiscard]] std::string description() const override {
    if (!emulated_as_.empty())
      return fmt::format("CUDA driver {} ({}), which is {}", version_text(version_), library_, emulated_as_);
    return fmt::format("CUDA driver {} ({})", version_text(version_), library_);
  }
  [[nodiscard]] bool emulated() const noexcept override {
    return false;
  }
  [[nodiscard]] std::optional<EmulatedPlace> emulated_place() const override {
    EmulatedPlace place;
    const char* const machine = place_ == nullptr ? nullptr : place_(&place.node);
    if (machine == nullptr) return std::nullopt;
    place.machine = machine;
    return place;
  }
  [[nodiscard]] bool has(EntryPoint entry) const noexcept override {
    return functions_[static_cast<std::size_t>(entry)] != nullptr;
  }
  [[nodiscard]] std::string explanation() const override {
    if (last_missing.driver == this) return why_missing(last_missing.entry);
    const char* const text = explanation_ == nullptr ? nullptr : explanation_();
    return text == nullptr ? std::string() : text;
  }

 private:
  template <EntryPoint entry, class... Arguments>
  CUresult invoke(Arguments... arguments) {
    const auto function = reinterpret_cast<FunctionOf<entry>>(functions_[static_cast<std::size_t>(entry)]);
    if (function == nullptr) [[unlikely]] {
      last_missing = {this, entry};
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    last_missing.driver = nullptr;
    return function(arguments...);
  }

  [[nodiscard]] std::string why_missing(EntryPoint entry) const {
    const EntryPointInfo& missing = info(entry);
    if (missing.group == EntryPointGroup::multicast && !multicast_off_.empty())
      return fmt::format("{}, so {} was not looked up", multicast_off_, missing.name);
    if (missing.version > version_)
      return fmt::format("{} needs a driver for CUDA {} or later, and this is one for CUDA {} ({}): update the driver",
                         missing.name, version_text(missing.version), version_text(version_), library_);
    return fmt::format("{} (CUDA {}) has no {}: check the installation of the driver", library_, version_text(version_),
                       missing.name);
  }

  void initialise(const LoadOptions& options) {
    for (const EntryPoint needed : {EntryPoint::cuInit, EntryPoint::cuDeviceGetCount})
      if (!has(needed)) unavailable(options, why_missing(needed), "Check the installation of the NVIDIA driver");
    const CUresult result = cuInit(0);
    if (result != CUDA_SUCCESS) refuse(options, result);
    int count = 0;
    const CUresult counted = cuDeviceGetCount(&count);
    if (counted != CUDA_SUCCESS) refuse(options, counted);
    if (count == 0) refuse(options, CUDA_ERROR_NO_DEVICE);
  }

  [[noreturn]] void refuse(const LoadOptions& options, CUresult result) const {
    if (!emulated_as_.empty())
      unavailable(
          options, fmt::format("The CUDA driver there is {}, and has no machine", emulated_as_),
          "Correct the settings CUVMM_EMULATOR and CUVMM_EMULATOR_CONFIG: it has told on standard error what is "
          "wrong",
          result);
    switch (result) {
      case CUDA_ERROR_NO_DEVICE:
        unavailable(options, "The CUDA driver is there, but shows no device to this process",
                    "Check nvidia-smi, the devices given to the container, and CUDA_VISIBLE_DEVICES", result);
      case CUDA_ERROR_STUB_LIBRARY:
        unavailable(options, "The library is the toolkit's stub, which serves for linking only",
                    "Take the toolkit's stubs folder out of LD_LIBRARY_PATH", result);
      case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        unavailable(options, "The driver library and the driver in the kernel are of different versions",
                    "Restart the machine after an update, or give the container the library of its host", result);
      case CUDA_ERROR_SYSTEM_NOT_READY:
        unavailable(options, "The system that connects the devices is not ready",
                    "Check that the fabric manager runs, and try again", result);
      default:
        unavailable(options, "The CUDA driver does not initialise", "Check nvidia-smi and the kernel's log", result);
    }
  }

  std::string library_;
  std::string
      emulated_as_;  // what it says of itself, if it is an emulated driver under the CUDA driver's name; else empty
  const char* (*place_)(int*) = nullptr;    // where such a driver's memory is
  const char* (*explanation_)() = nullptr;  // why its last call in this thread failed
  std::string multicast_off_;
  int version_ = 0;
  std::array<void*, entry_point_count> functions_{};
};

}  // namespace

std::shared_ptr<Interface> load_driver(const LoadOptions& options) {
  return std::make_shared<LoadedDriver>(options);
}

}  // namespace cuvmm::driver
