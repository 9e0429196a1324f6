#include "tour/unmap_probe.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "command/child_process.hpp"
#include "command/driver_choice.hpp"
#include "cuvmm/copy.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "tour/access_probe.hpp"
#include "tour/content_checksum.hpp"
#include "tour/emulated_machine.hpp"
#include "tour/gpu.hpp"
#include "tour/input_file.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;

constexpr auto command_name = "unmap-probe";

// As good as for ever: the deadline for the child's answer comes sooner.
constexpr std::uint64_t most_polls = std::uint64_t{1} << 40;

std::string text_of(const UnmapAnswer& answer) {
  return fmt::format("{:d} {} {} {}", answer.waited, static_cast<int>(answer.kernel), answer.checksum,
                     static_cast<int>(answer.touched_after));
}

// A range with content, and a word at its end that kernels wait for. Two streams: one that reads the range as soon as
// the word is set, and one that sets it as soon as the host says so. Nothing but the range's own waiting keeps it
// mapped.
class UnmapTrial {
 public:
  UnmapTrial(const UnmapProbe& probe, std::shared_ptr<driver::CountingDriver> counter)
      : counter_(std::move(counter)),
        driver_(Driver::wrap(counter_)),
        interface_(*counter_),
        gpu_(driver_, DeviceOrdinal(0)),
        content_(first_bytes_of(probe.file)),
        range_(MappedRange::create(driver_, {.capacity = unmap_probe_bytes + gpu_.device().granularity(),
                                             .memory = {gpu_.location()},
                                             .chunks = ChunkPolicy::exact()})) {
    gpu_.make_current();
    seen_by_kernel_.emplace(driver_, unmap_probe_bytes);
    told_.emplace(driver_, sizeof(std::uint32_t));
    range_.append(unmap_probe_bytes + sizeof(std::uint64_t));
    copy_bytes_to_device(driver_, range_.address(), content_);
    use_kernels_once();
  }

  [[nodiscard]] UnmapAnswer run() {
    start_kernels();
    UnmapAnswer answer;
    std::atomic<bool> returned = false;
    std::thread unmapping([&] {
      // As long as kernels spin nothing can be given back in order: then a failure is all there is to tell.
      if (const Result<void> unmapped = range_.try_unmap(0, range_.mapped_bytes()); !unmapped)
        answer_and_end(unmapped.failure().message());
      returned = true;
    });
    // Either it comes back, or it asks again and again whether the work is done.
    const auto asked = [&] { return counter_->snapshot()[EntryPoint::cuEventQuery]; };
    while (!returned && asked() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    answer.waited = !returned;
    if (!answer.waited) answer_and_end(text_of(answer));  // the kernels have lost their memory: nothing is left to do
    tell_kernels();
    answer.kernel = interface_.cuStreamSynchronize(reading_);
    unmapping.join();
    ContentChecksum checksum;
    checksum.add(seen_by_kernel_->bytes().first(content_.size()));
    answer.checksum = checksum.value();
    const unsigned char byte = 0;
    answer.touched_after = interface_.cuMemcpyHtoD(range_.address().value, &byte, 1);
    return answer;
  }

 private:
  static std::vector<std::byte> first_bytes_of(const std::string& path) {
    const InputFile input(path);
    std::vector<std::byte> content(std::min<std::uint64_t>(input.size(), unmap_probe_bytes));
    input.read(0, content);
    return content;
  }

  [[nodiscard]] abi::CUdeviceptr word_address() const { return (range_.address() + unmap_probe_bytes).value; }

  // A driver may load a kernel when it is first started, and wait for the device before it does: too late once another
  // one spins.
  void use_kernels_once() {
    call<EntryPoint::cuMemsetD32Async>(interface_, word_address(), 0U, std::size_t{1}, nullptr);
    gpu_.start_spin(nullptr, word_address(), 1);
    gpu_.copy(seen_by_kernel_->address(), range_.address().value, content_.size());
    std::fill(seen_by_kernel_->bytes().begin(), seen_by_kernel_->bytes().end(), std::byte{0});
    std::fill(told_->bytes().begin(), told_->bytes().end(), std::byte{0});
  }

  void start_kernels() {
    for (abi::CUstream* stream : {&reading_, &telling_})
      call<EntryPoint::cuStreamCreate>(interface_, stream, static_cast<unsigned>(abi::CU_STREAM_NON_BLOCKING));
    gpu_.start_spin(reading_, word_address(), most_polls);
    gpu_.start_copy(reading_, seen_by_kernel_->address(), range_.address().value, content_.size());
    gpu_.start_spin(telling_, told_->address(), most_polls);
    call<EntryPoint::cuMemsetD32Async>(interface_, word_address(), 1U, std::size_t{1}, telling_);
    range_.used_on(reading_);
    range_.used_on(telling_);
  }

  void tell_kernels() {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(told_->bytes().data())).store(1, std::memory_order_release);
  }

  std::shared_ptr<driver::CountingDriver> counter_;
  Driver driver_;
  driver::Interface& interface_;
  Gpu gpu_;
  std::vector<std::byte> content_;
  std::optional<ReachableHostMemory> seen_by_kernel_;
  std::optional<ReachableHostMemory> told_;
  MappedRange range_;
  abi::CUstream reading_ = nullptr;
  abi::CUstream telling_ = nullptr;
};

}  // namespace

UnmapAnswer run_in_child(const UnmapProbe& probe) {
  const std::string answered = command::output_of_self(
      {command_name, "--driver", probe.driver == command::DriverChoice::cuda ? "cuda" : "emulated", "--devices",
       std::to_string(probe.devices), "--file=" + probe.file},
      std::chrono::minutes(1));
  std::istringstream words(answered);
  UnmapAnswer answer;
  int kernel = 0;
  int touched = 0;
  if (!(words >> answer.waited >> kernel >> answer.checksum >> touched))
    throw std::runtime_error("a child process could not try to unmap: " + answered);
  answer.kernel = static_cast<abi::CUresult>(kernel);
  answer.touched_after = static_cast<abi::CUresult>(touched);
  return answer;
}

CLI::App* add_probe_command(CLI::App& application, UnmapProbe& probe) {
  CLI::App* command = application.add_subcommand(command_name, "Unmapping under a running kernel; for the tour");
  command->group("");  // not shown: no use to people
  command::add_driver_option(*command, probe.driver);
  command->add_option("--devices", probe.devices);
  command->add_option("--file", probe.file);
  return command;
}

void run_probe(const UnmapProbe& probe) {
  try {
    auto counter = std::make_shared<driver::CountingDriver>(
        command::open_driver_apart(probe.driver, probe.devices, emulated_machine()).shared_interface());
    UnmapTrial trial(probe, std::move(counter));
    answer_and_end(text_of(trial.run()));
  } catch (const std::exception& error) {
    answer_and_end(error.what());
  }
}

}  // namespace cuvmm::tour
