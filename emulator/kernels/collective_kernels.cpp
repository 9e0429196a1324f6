#include "emulator/kernels/collective_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

// g++ does not see that every team has a first rank, with which each sum begins.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include "cuvmm/gpu/all_gather.cuh"
#include "cuvmm/gpu/all_reduce.cuh"
#include "cuvmm/gpu/broadcast.cuh"
#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/rank_barrier.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#include "emulator/kernels/device_memory_policy.hpp"
#include "gpu/collective_image.hpp"

namespace cuvmm::emulator {
namespace {

using gpu::AllGather;
using gpu::AllReduceWay;
using gpu::Broadcast;
using gpu::RankBarrier;

// What a launch may touch.
class Touched {
 public:
  explicit Touched(const gpu::Team& team) : ranks_(std::min(team.ranks, gpu::max_ranks)) {
    add(team.states, team.blocks);
    add(team.multicast_arrivals, team.blocks);
    add_all(team.arrivals, team.blocks);
    add_all(team.lines, gpu::line_count(ranks_, team.blocks, team.lines_per_block));
    if (ranks_ > 1) add_all(team.staging, gpu::staging_count(ranks_, team.staging_packs));
  }

  template <class T>
  void add(T* address, std::uint64_t count) {
    constexpr std::uint64_t most = std::uint64_t{1} << 48;  // more than there is, and no more than can be added
    if (address != nullptr)
      views_.push_back(
          {reinterpret_cast<std::uintptr_t>(address), std::min(count, most) * sizeof(T), !std::is_const_v<T>});
  }
  template <class T>
  void add_all(T* const* addresses, std::uint64_t count) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) add(addresses[rank], count);
  }
  [[nodiscard]] std::vector<KernelView> views() && { return std::move(views_); }

 private:
  const std::uint32_t ranks_;
  std::vector<KernelView> views_;
};

template <class T>
std::vector<KernelView> touched_by(const gpu::AllReduce<T>& call) {
  Touched touched(call.team);
  touched.add_all(call.inputs, call.count);
  touched.add_all(call.outputs, call.count);
  touched.add(call.multicast_input, call.count);
  touched.add(call.multicast_output, call.count);
  return std::move(touched).views();
}
std::vector<KernelView> touched_by(const Broadcast& call) {
  Touched touched(call.team);
  touched.add(call.input, call.bytes);
  touched.add_all(call.outputs, call.bytes);
  touched.add(call.multicast_output, call.bytes);
  return std::move(touched).views();
}
std::vector<KernelView> touched_by(const AllGather& call) {
  Touched touched(call.team);
  touched.add_all(call.inputs, call.bytes);
  touched.add_all(call.outputs, call.bytes * call.team.ranks);
  touched.add(call.multicast_output, call.bytes * call.team.ranks);
  return std::move(touched).views();
}
std::vector<KernelView> touched_by(const RankBarrier& call) {
  return Touched(call.team).views();
}

// `function(memory, block, arguments)` is the collective.
template <class Arguments, class Function>
HostKernel collective(std::string_view name, Function function) {
  HostKernel kernel;
  kernel.name = name;
  kernel.argument_bytes = {sizeof(Arguments)};
  kernel.views = [](const KernelArguments& arguments) { return touched_by(arguments.get<Arguments>(0)); };
  kernel.run_block = [function](const BlockCall& call) {
    const auto arguments = call.arguments.get<Arguments>(0);
    function(DeviceMemoryPolicy(call.memory), gpu::HostBlock(call.block, call.blocks), arguments);
  };
  return kernel;
}

template <class T>
void add_all_reduces(std::vector<HostKernel>& kernels) {
  const auto add = [&](AllReduceWay way, auto function) {
    kernels.push_back(collective<gpu::AllReduce<T>>(gpu::all_reduce_kernel<T>(way), function));
  };
  add(AllReduceWay::flagged, [](const auto&... all) { gpu::all_reduce_flagged<T>(all...); });
  add(AllReduceWay::staged_one_shot, [](const auto&... all) { gpu::all_reduce_staged_one_shot<T>(all...); });
  add(AllReduceWay::staged_two_shot, [](const auto&... all) { gpu::all_reduce_staged_two_shot<T>(all...); });
  add(AllReduceWay::one_shot, [](const auto&... all) { gpu::all_reduce_one_shot<T>(all...); });
  add(AllReduceWay::two_shot, [](const auto&... all) { gpu::all_reduce_two_shot<T>(all...); });
  add(AllReduceWay::multimem_one_shot, [](const auto&... all) { gpu::all_reduce_multimem_one_shot<T>(all...); });
  add(AllReduceWay::multimem_two_shot, [](const auto&... all) { gpu::all_reduce_multimem_two_shot<T>(all...); });
}

}  // namespace

std::vector<HostKernel> collective_kernels() {
  std::vector<HostKernel> kernels;
  add_all_reduces<float>(kernels);
  add_all_reduces<gpu::float16>(kernels);
  add_all_reduces<gpu::bfloat16>(kernels);
  add_all_reduces<std::int32_t>(kernels);
  add_all_reduces<std::uint32_t>(kernels);
  add_all_reduces<std::uint64_t>(kernels);
  const auto add = [&](HostKernel kernel) { kernels.push_back(std::move(kernel)); };
  add(collective<Broadcast>(gpu::broadcast_kernel, [](const auto&... all) { broadcast(all...); }));
  add(collective<Broadcast>(gpu::multimem_broadcast_kernel, [](const auto&... all) { multimem_broadcast(all...); }));
  add(collective<AllGather>(gpu::all_gather_kernel, [](const auto&... all) { all_gather(all...); }));
  add(collective<AllGather>(gpu::multimem_all_gather_kernel, [](const auto&... all) { multimem_all_gather(all...); }));
  add(collective<RankBarrier>(gpu::rank_barrier_kernel, [](const auto&... all) { rank_barrier(all...); }));
  add(collective<RankBarrier>(gpu::multimem_rank_barrier_kernel,
                              [](const auto&... all) { multimem_rank_barrier(all...); }));
  return kernels;
}

}  // namespace cuvmm::emulator
