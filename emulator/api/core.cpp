// Initialisation, versions, names of results, and what the driver says of itself.
#include <fmt/format.h>

#include <exception>

#include "driver/fork_count.hpp"
#include "emulator/api/answering.hpp"
#include "emulator/emulated_driver.hpp"
#include "emulator/kernels/builtin_kernels.hpp"
#include "emulator/kernels/collective_kernels.hpp"
#include "emulator/kernels/multimem_kernels.hpp"
#include "emulator/thread_storage.hpp"

namespace cuvmm::emulator::api {
namespace {

// Why the calling thread's last call to a driver failed. One driver at a time is enough: it is asked at once.
struct Explanation {
  const void* driver = nullptr;
  std::string text;
};
Explanation& last_explanation() {
  return of_this_thread<Explanation>();
}

struct ResultText {
  CUresult result;
  const char* name;
  const char* string;
};

constexpr ResultText result_texts[] = {
#define CUVMM_RESULT_STRING(name, string) {CUDA_##name, "CUDA_" #name, string},
#include "emulator/api/result_strings.def"
};

const ResultText* find_result(CUresult result) {
  for (const ResultText& text : result_texts)
    if (text.result == result) return &text;
  return nullptr;
}

// One of the texts of a result; null for what is none.
Answer describe(CUresult result, const char* ResultText::*which, const char** string) {
  if (string == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "pStr must not be null"};
  const ResultText* text = find_result(result);
  *string = text == nullptr ? nullptr : text->*which;
  if (text != nullptr) return {};
  return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("{} is no result", static_cast<int>(result))};
}

execution::Scheduling scheduling_of(const Configuration& configuration) {
  execution::Scheduling scheduling;
  if (configuration.scheduler == Scheduler::stepped) {
    scheduling.mode = execution::Scheduling::Mode::stepped;
    scheduling.seed = configuration.seed;
    scheduling.steps_per_query = 1;
  }
  return scheduling;
}

// What there is to do on this machine, where that is another thing than on a real one.
std::string_view way_out_here(Rule rule, const RuleText& text) {
  return rule == Rule::create_fabric_permission
             ? "Emulate IMEX channels (imex-channels=1, or profile=gb200), and let this process open them; or use "
               "descriptors"
             : text.way_out;
}

}  // namespace

EmulatedDriver::EmulatedDriver(const Configuration& configuration)
    : machine_(MachineParts::of(configuration)), engine_(scheduling_of(configuration)) {
  for (const HostKernel& kernel : builtin_kernels()) add_kernel(kernel);
  for (const HostKernel& kernel : collective_kernels()) add_kernel(kernel);
  for (const HostKernel& kernel : multimem_kernels()) add_kernel(kernel);
  for (const HostKernel& kernel : configuration.kernels) add_kernel(kernel);
}

void EmulatedDriver::add_kernel(HostKernel kernel) {
  std::string name = kernel.name;
  kernels_.insert_or_assign(std::move(name), std::move(kernel));
}

EmulatedDriver::~EmulatedDriver() = default;

CUresult EmulatedDriver::conclude(const char* call, CUresult code, Rule rule, const char* detail) noexcept {
  Explanation& last = last_explanation();
  last.driver = this;
  last.text.clear();
  if (code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY) return code;
  const RuleText& text = emulator::text(rule);
  if (machine_.configuration().is_off(text.id)) return CUDA_SUCCESS;
  try {
    const std::string_view way_out = way_out_here(rule, text);
    // The rule says what a real driver does, which is not what has just been done.
    const bool stricter = text.breach == Breach::accepted && machine_.configuration().mode == Mode::strict;
    const std::string_view why_refused =
        stricter ? "; strict mode refuses what breaks this rule, also where a real driver accepts it" : "";
    last.text = fmt::format("{}: {} ({}{}).\n{}.", text.id, text.says, detail, why_refused, way_out);
    if (machine_.configuration().explain)
      fmt::print(stderr, "cuvmm emulated driver: {} answers {}: {}: {} ({}{}). {}.\n", call, find_result(code)->name,
                 text.id, text.says, detail, why_refused, way_out);
  } catch (const std::exception&) {
    last.text.clear();  // no memory left to explain with; the code says enough
  }
  return code;
}

std::string EmulatedDriver::explanation() const {
  return last_explanation().driver == this ? last_explanation().text : std::string();
}

bool EmulatedDriver::has(driver::EntryPoint entry) const noexcept {
  return driver::info(entry).version <= machine_.configuration().profile.driver_version;
}

std::string EmulatedDriver::description() const {
  const Configuration& configuration = machine_.configuration();
  const int version = configuration.profile.driver_version;
  return fmt::format("emulated driver {}.{}, profile {}, {}", version / 1000, version % 1000 / 10,
                     configuration.profile.name, configuration.mode == Mode::strict ? "strict" : "faithful");
}

std::optional<driver::EmulatedPlace> EmulatedDriver::emulated_place() const {
  return driver::EmulatedPlace{machine_.identity(), machine_.configuration().node};
}

Answer EmulatedDriver::check_initialised() const {
  if (!initialised_.load(std::memory_order_acquire))
    return {CUDA_ERROR_NOT_INITIALIZED, Rule::driver_initialised, "cuInit was not called"};
  if (initialised_at_fork_count_.load(std::memory_order_relaxed) != driver::fork_count())
    return {CUDA_ERROR_NOT_INITIALIZED, Rule::not_after_fork, "cuInit was called before this process was forked"};
  if (execution::inside_host_function())
    return {CUDA_ERROR_NOT_PERMITTED, Rule::host_function, "called from a host function"};
  if (execution::inside_kernel())
    return {CUDA_ERROR_NOT_PERMITTED, Rule::host_kernel, "called from the function of a host kernel"};
  return {};
}

CUresult EmulatedDriver::cuInit(unsigned int flags) {
  return answer([&]() -> Answer {
    if (flags != 0) return {CUDA_ERROR_INVALID_VALUE, Rule::flags_zero, fmt::format("flags are {:#x}", flags)};
    if (!initialised_.load(std::memory_order_acquire)) {
      initialised_at_fork_count_.store(driver::fork_count(), std::memory_order_relaxed);
      initialised_.store(true, std::memory_order_release);
    }
    if (initialised_at_fork_count_.load(std::memory_order_relaxed) == driver::fork_count()) return {};
    return {CUDA_ERROR_NOT_INITIALIZED, Rule::not_after_fork, "cuInit was called before this process was forked"};
  });
}

CUresult EmulatedDriver::cuDriverGetVersion(int* version) {
  return answer([&]() -> Answer {
    if (version == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "driverVersion must not be null"};
    *version = machine_.configuration().profile.driver_version;
    return {};
  });
}

CUresult EmulatedDriver::cuGetErrorName(CUresult result, const char** string) {
  return answer([&] { return describe(result, &ResultText::name, string); });
}

CUresult EmulatedDriver::cuGetErrorString(CUresult result, const char** string) {
  return answer([&] { return describe(result, &ResultText::string, string); });
}

}  // namespace cuvmm::emulator::api

namespace cuvmm::emulator {

std::shared_ptr<driver::Interface> make_emulated_driver(const Configuration& configuration) {
  configuration.validate();
  // A forked child has none of the threads that the driver's end would wait for, and shares its bytes with the parent.
  // A thread that runs the driver's own work ends it when that is done.
  return {new api::EmulatedDriver(configuration), [made_at = driver::fork_count()](api::EmulatedDriver* driver) {
            if (made_at != driver::fork_count()) return;
            if (driver->engine().running_here())
              execution::put_off_end([](void* owner) { delete static_cast<api::EmulatedDriver*>(owner); }, driver);
            else
              delete driver;
          }};
}

}  // namespace cuvmm::emulator
