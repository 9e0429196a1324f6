// Launches of collectives on one device, whatever team it belongs to: the arguments say who the others are, and where.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cuvmm/context.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/gpu/rank_barrier.cuh"
#include "driver/abi.hpp"
#include "gpu/collective_checks.hpp"
#include "gpu/collective_image.hpp"

namespace cuvmm::gpu {

// Has the kernels on a device, in its primary context. Arguments that a kernel could not survive are refused before the
// driver is asked (InvalidUse, with the way out). Streams are of the device's primary context. Everything is
// asynchronous. For one thread.
class CollectiveLauncher {
 public:
  // Loads the kernels: on a GPU this throws where the project was built without nvcc.
  explicit CollectiveLauncher(const Device& device);
  ~CollectiveLauncher();
  CollectiveLauncher(const CollectiveLauncher&) = delete;
  CollectiveLauncher& operator=(const CollectiveLauncher&) = delete;
  CollectiveLauncher(CollectiveLauncher&&) = delete;
  CollectiveLauncher& operator=(CollectiveLauncher&&) = delete;

  template <class T>
  void all_reduce(abi::CUstream stream, AllReduceWay way, const AllReduce<T>& call, const CollectiveShape& shape) {
    check(refusal_of(call, way, shape));
    launch(stream, all_reduce_kernel<T>(way), call, shape);
  }
  // `multicast`: by one access to all ranks, at the multicast addresses of the call.
  void broadcast(abi::CUstream stream, const Broadcast& call, const CollectiveShape& shape, bool multicast = false) {
    check(refusal_of(call, shape, multicast));
    launch(stream, multicast ? multimem_broadcast_kernel : broadcast_kernel, call, shape);
  }
  void all_gather(abi::CUstream stream, const AllGather& call, const CollectiveShape& shape, bool multicast = false) {
    check(refusal_of(call, shape, multicast));
    launch(stream, multicast ? multimem_all_gather_kernel : all_gather_kernel, call, shape);
  }
  void barrier(abi::CUstream stream, const Team& team, const CollectiveShape& shape, bool multicast = false) {
    launch(stream, multicast ? multimem_rank_barrier_kernel : rank_barrier_kernel, RankBarrier{team}, shape);
  }

  // A kernel by its name, whose arguments begin with a Team. Of them that alone is looked at.
  template <class Arguments>
  void launch(abi::CUstream stream, std::string_view kernel, const Arguments& arguments, const CollectiveShape& shape) {
    check(refusal_of(kernel, arguments.team, shape));
    Arguments copy = arguments;
    launch_bytes(stream, kernel, &copy, shape);
  }

  [[nodiscard]] const Device& device() const noexcept { return device_; }

 private:
  static void check(const std::optional<Failure>& refusal) {
    if (refusal) raise(*refusal);
  }
  void launch_bytes(abi::CUstream stream, std::string_view kernel, void* arguments, const CollectiveShape& shape);
  abi::CUfunction function(std::string_view kernel);

  // The primary context, which ends with the last who holds it, and with it all modules and streams.
  class HeldContext {
   public:
    explicit HeldContext(const Device& device);
    ~HeldContext();
    HeldContext(const HeldContext&) = delete;
    HeldContext& operator=(const HeldContext&) = delete;
    HeldContext(HeldContext&&) = delete;
    HeldContext& operator=(HeldContext&&) = delete;

   private:
    Device device_;
  };

  Device device_;
  HeldContext context_;
  abi::CUmodule module_ = nullptr;
  std::map<std::string, abi::CUfunction, std::less<>> functions_;
};

}  // namespace cuvmm::gpu
