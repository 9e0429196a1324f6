// Emulated kernels that reach the memory of all ranks of a team through a multicast address.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/copy.hpp"
#include "cuvmm/team/symmetric_memory.hpp"
#include "driver/interface.hpp"
#include "emulator/multimem.hpp"

namespace cuvmm::team::test {

// Of numbers of eight bytes at a multicast address: one stores a number for all ranks, one adds up those of all.
inline std::vector<emulator::HostKernel> multimem_kernels() {
  using namespace emulator::multimem;
  constexpr auto number = sizeof(std::uint64_t);
  const auto views = [](const emulator::KernelArguments& given) {
    return std::vector<emulator::KernelView>{{given.get<std::uint64_t>(0), number, true, number, true}};
  };
  return {{"store_for_all",
           {number, number},
           views,
           [](const emulator::KernelCall& call) {
             Accesses(call).store<Form{.type = Type::u64}>(0, 0, std::array{call.arguments.get<std::uint64_t>(1)});
             return emulator::KernelProgress::done;
           }},
          {"sum_of_all", {number, number}, views, [](const emulator::KernelCall& call) {
             auto* const sum = reinterpret_cast<std::uint64_t*>(call.arguments.get<std::uint64_t>(1));
             *sum = Accesses(call).load_reduce<Form{.type = Type::u64}, std::uint64_t>(0, 0)[0];
             return emulator::KernelProgress::done;
           }}};
}

// Whether it has done what it should, on the device whose context is current.
inline bool run_kernel(const Device& device, const std::string& name, std::uint64_t first, std::uint64_t second) {
  driver::Interface& driver = device.driver().interface();
  const std::string image = ".version 8.0\n.visible .entry " + name + "()\n";
  abi::CUmodule module = nullptr;
  abi::CUfunction function = nullptr;
  void* parameters[] = {&first, &second};
  abi::CUresult result = driver.cuModuleLoadData(&module, image.c_str());
  if (result == abi::CUDA_SUCCESS) result = driver.cuModuleGetFunction(&function, module, name.c_str());
  if (result == abi::CUDA_SUCCESS)
    result = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  if (result == abi::CUDA_SUCCESS) result = driver.cuCtxSynchronize();
  return result == abi::CUDA_SUCCESS;
}
inline bool store_for_all(const Team& team, DeviceAddress address, std::uint64_t number) {
  return run_kernel(team.device(), "store_for_all", address.value, number);
}
inline std::optional<std::uint64_t> sum_of_all(const Team& team, DeviceAddress address) {
  std::uint64_t sum = 0;
  if (!run_kernel(team.device(), "sum_of_all", address.value, reinterpret_cast<std::uint64_t>(&sum)))
    return std::nullopt;
  return sum;
}

// Each rank stores a number of its own, through the multicast address, which all have to find in their own memory; then
// each stores one in its own memory, and all have to find the sum. `own`: where this rank's memory is in the range, at
// the same offset as the address. Whether all was as it should be.
inline bool all_found_by_multimem(Team& team, DeviceAddress multicast, const MappedRange& range, std::size_t own,
                                  std::uint64_t round, const Deadline& deadline) {
  constexpr auto number = sizeof(std::uint64_t);
  const auto size = static_cast<std::size_t>(team.size());
  const auto rank = static_cast<std::size_t>(team.rank());
  bool right = store_for_all(team, multicast + rank * number, 1000 * round + rank);
  team.vote("stored for all", {}, deadline);
  std::vector<std::uint64_t> found(size);
  copy_from_device(found, range, own);
  for (std::size_t each = 0; each < size; ++each) right = right && found[each] == 1000 * round + each;
  team.vote("found", {}, deadline);
  copy_to_device(range, own, std::vector<std::uint64_t>{round + rank});
  team.vote("stored", {}, deadline);
  right = right && sum_of_all(team, multicast) == size * round + size * (size - 1) / 2;
  team.vote("added up", {}, deadline);
  return right;
}
inline bool all_found_by_multimem(const SymmetricMemory& memory, std::size_t offset, std::uint64_t round,
                                  const Deadline& deadline) {
  Team& team = *memory.team();
  return all_found_by_multimem(team, memory.multicast_address(offset).value(), memory.range(),
                               memory.offset_in_range(team.rank(), offset), round, deadline);
}

}  // namespace cuvmm::team::test
