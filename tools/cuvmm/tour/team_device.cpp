#include "tour/team_device.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "clean_up.hpp"
#include "driver/call.hpp"
#include "driver/emulation.hpp"
#include "driver/multicast_switch.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {

using driver::call;
using driver::EntryPoint;

TeamDevice::TeamDevice(Gpu& gpu) : gpu_(gpu), driver_(gpu.device().driver().interface()) {
  gpu_.make_current();
  call<EntryPoint::cuModuleLoadData>(driver_, &module_, static_cast<const void*>(gpu::multimem_image().data()));
  if (const abi::CUresult none = driver_.cuStreamCreate(&stream_, abi::CU_STREAM_NON_BLOCKING);
      none != abi::CUDA_SUCCESS) {
    clean_up<EntryPoint::cuModuleUnload>(driver_, module_);
    raise(driver::describe_failure(driver_, EntryPoint::cuStreamCreate, none, "", {}));
  }
}

TeamDevice::~TeamDevice() {
  gpu_.finish_work();  // makes its context current
  clean_up<EntryPoint::cuStreamDestroy>(driver_, stream_);
  clean_up<EntryPoint::cuModuleUnload>(driver_, module_);
}

bool TeamDevice::is_idle() const {
  gpu_.make_current();
  const abi::CUresult answer = driver_.cuStreamQuery(stream_);
  if (answer == abi::CUDA_ERROR_NOT_READY) return false;
  if (answer == abi::CUDA_SUCCESS) return true;
  raise(driver::describe_failure(driver_, EntryPoint::cuStreamQuery, answer, "", {}));
}

void TeamDevice::finish() const {
  gpu_.make_current();
  call<EntryPoint::cuStreamSynchronize>(driver_, stream_);
}

void TeamDevice::launch(std::string_view kernel, const gpu::LaunchShape& shape, void** parameters) {
  gpu_.make_current();
  abi::CUfunction function = nullptr;
  call<EntryPoint::cuModuleGetFunction>(driver_, &function, module_, kernel.data());
  call<EntryPoint::cuLaunchKernel>(driver_, function, shape.blocks, 1U, 1U, shape.threads_per_block, 1U, 1U, 0U,
                                   stream_, parameters, static_cast<void**>(nullptr));
}

std::string why_no_multicast(const Device& device) {
  if (std::string off = driver::why_multicast_is_off(); !off.empty()) return off;
  driver::Interface& driver = device.driver().interface();
  if (!driver.has(EntryPoint::cuMulticastCreate)) return "the driver has no multicast, which came with CUDA 12.1";
  if (device.attribute(abi::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0) return {};
  return fmt::format("device {} has no multicast: {}", device.ordinal().value,
                     driver::is_emulation(driver)
                         ? "emulate a machine that has it, CUVMM_EMULATOR=profile=h200-multicast,devices=8"
                         : "it takes GPUs of one NVSwitch fabric");
}

TeamDevices::TeamDevices(const Visit& visit) {
  const Gpu& first = require_first_gpu(visit);
  if (const std::string why = why_no_multicast(first.device()); !why.empty()) throw Unavailable(why);
  const std::size_t there =
      visit.driver.is_emulated() ? static_cast<std::size_t>(visit.driver.device_count()) : visit.gpus.size();
  for (std::size_t ordinal = 0; ordinal < there; ++ordinal) {
    if (ordinal >= visit.gpus.size())
      beyond_.push_back(std::make_unique<Gpu>(visit.driver, DeviceOrdinal(static_cast<int>(ordinal))));
    add(ordinal < visit.gpus.size() ? *visit.gpus[ordinal] : *beyond_.back());
  }
  if (size() > 1) return;
  if (there > 1) throw Unavailable(fmt::format("no other device reaches device {}", first.ordinal()));
  throw Unavailable(visit.driver.is_emulated() ? "the machine has one device: emulate more, CUVMM_EMULATOR=devices=8"
                                               : "one device takes part: ask for --devices 2");
}

// All devices of a team reach each other.
void TeamDevices::add(Gpu& gpu) {
  const auto reaches = [&](const auto& each) { return gpu.device().can_access_peer(each->device()); };
  if (!why_no_multicast(gpu.device()).empty() || !std::all_of(devices_.begin(), devices_.end(), reaches)) return;
  gpu.require_room(gpu.device().granularity());
  devices_.push_back(std::make_unique<TeamDevice>(gpu));
}

std::vector<std::size_t> TeamDevices::team_sizes() const {
  std::vector<std::size_t> sizes;
  for (const std::size_t ranks : {2, 4, 8})
    if (ranks <= size()) sizes.push_back(ranks);
  return sizes;
}

std::uint64_t TeamDevices::free_memory() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& each : devices_) least = std::min(least, each->gpu().free_memory());
  return least;
}

}  // namespace cuvmm::tour
