#include "emulator/kernels/builtin_kernels.hpp"

#include <atomic>
#include <cstring>
#include <span>

#include "emulator/kernels/host_kernels.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::emulator {
namespace {

using u64 = std::uint64_t;

HostKernel fill_kernel() {
  return {std::string(gpu::FillParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(u64)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<u64>(0), arguments.get<u64>(1), true}};
          },
          [](const KernelCall& call) {
            host_kernels::fill({call.windows[0], call.arguments.get<u64>(1)}, call.arguments.get<u64>(2));
            return KernelProgress::done;
          }};
}

HostKernel copy_kernel() {
  return {std::string(gpu::CopyParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(u64)},
          [](const KernelArguments& arguments) {
            const u64 bytes = arguments.get<u64>(2);
            return std::vector<KernelView>{{arguments.get<u64>(0), bytes, true}, {arguments.get<u64>(1), bytes, false}};
          },
          [](const KernelCall& call) {
            const u64 bytes = call.arguments.get<u64>(2);
            host_kernels::copy({call.windows[0], bytes}, {call.windows[1], bytes});
            return KernelProgress::done;
          }};
}

HostKernel checksum_kernel() {
  return {std::string(gpu::ChecksumParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<u64>(0), arguments.get<u64>(1), false},
                                           {arguments.get<u64>(3), sizeof(u64), true, alignof(u64)}};
          },
          [](const KernelCall& call) {
            const u64 sum =
                host_kernels::checksum({call.windows[0], call.arguments.get<u64>(1)}, call.arguments.get<u64>(2));
            std::atomic_ref<u64>(*reinterpret_cast<u64*>(call.windows[1])).fetch_add(sum);
            return KernelProgress::done;
          }};
}

HostKernel scale_add_kernel() {
  return {std::string(gpu::ScaleAddParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(float), sizeof(u64)},
          [](const KernelArguments& arguments) {
            // More values than addresses: more bytes than any memory has, which the device refuses.
            const u64 count = arguments.get<u64>(3);
            const u64 bytes = count > ~u64{0} / sizeof(float) ? ~u64{0} : count * sizeof(float);
            return std::vector<KernelView>{{arguments.get<u64>(0), bytes, true, alignof(float)},
                                           {arguments.get<u64>(1), bytes, false, alignof(float)}};
          },
          [](const KernelCall& call) {
            const u64 count = call.arguments.get<u64>(3);
            host_kernels::scale_add({reinterpret_cast<float*>(call.windows[0]), count},
                                    {reinterpret_cast<const float*>(call.windows[1]), count},
                                    call.arguments.get<float>(2));
            return KernelProgress::done;
          }};
}

// Looks at the flag once a call, so that the scheduler goes on with other streams.
HostKernel spin_kernel() {
  return {
      std::string(gpu::SpinParameters::kernel),
      {sizeof(u64), sizeof(u64)},
      [](const KernelArguments& arguments) {
        return std::vector<KernelView>{{arguments.get<u64>(0), sizeof(std::uint32_t), false, alignof(std::uint32_t)}};
      },
      [](const KernelCall& call) {
        const bool seen = host_kernels::spin(*reinterpret_cast<const std::uint32_t*>(call.windows[0]), 1);
        const bool given_up = call.tries + 1 >= call.arguments.get<u64>(1);
        return seen || given_up ? KernelProgress::done : KernelProgress::again;
      }};
}

HostKernel alias_kernel() {
  return {std::string(gpu::AliasParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64)},
          [](const KernelArguments& arguments) {
            const u64 bytes = arguments.get<u64>(3);
            return std::vector<KernelView>{{arguments.get<u64>(0), bytes, true},
                                           {arguments.get<u64>(1), bytes, false},
                                           {arguments.get<u64>(2), bytes, false},
                                           {arguments.get<u64>(5), sizeof(u64), true, alignof(u64)}};
          },
          [](const KernelCall& call) {
            const u64 bytes = call.arguments.get<u64>(3);
            const u64 sum = host_kernels::alias({call.windows[0], bytes}, {call.windows[1], bytes},
                                                {call.windows[2], bytes}, call.arguments.get<u64>(4));
            std::atomic_ref<u64>(*reinterpret_cast<u64*>(call.windows[3])).fetch_add(sum);
            return KernelProgress::done;
          }};
}

// Some tiles a call, so that the scheduler goes on with other streams.
KernelProgress read_some(const KernelCall& call) {
  constexpr int at_once = 64;
  const u64 tile_bytes = call.arguments.get<u64>(2), tiles = call.arguments.get<u64>(3);
  const u64 in_memory = call.arguments.get<u64>(1) / tile_bytes;
  auto& state = *reinterpret_cast<gpu::ReadState*>(call.windows[1]);
  std::atomic_ref<u64> begun(state.begun), progress(*reinterpret_cast<u64*>(call.windows[2]));
  for (int count = 0; count < at_once; ++count) {
    const u64 tile = begun.load();
    if (tile >= tiles || std::atomic_ref<std::uint32_t>(state.stop).load() != 0) return KernelProgress::done;
    state.sum += host_kernels::sum_of_words({call.windows[0] + tile % in_memory * tile_bytes, tile_bytes});
    begun.store(tile + 1);
    progress.store(tile + 1);
  }
  return KernelProgress::again;
}

HostKernel read_kernel() {
  return {std::string(gpu::ReadParameters::kernel),
          {sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64), sizeof(u64)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<u64>(0), arguments.get<u64>(1), false, 16},
                                           {arguments.get<u64>(4), sizeof(gpu::ReadState), true, alignof(u64)},
                                           {arguments.get<u64>(5), sizeof(u64), true, alignof(u64)}};
          },
          read_some};
}

}  // namespace

std::vector<HostKernel> builtin_kernels() {
  return {fill_kernel(), copy_kernel(),  checksum_kernel(), scale_add_kernel(),
          spin_kernel(), alias_kernel(), read_kernel()};
}

}  // namespace cuvmm::emulator
