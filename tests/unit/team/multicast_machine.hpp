// Emulated machines with multicast for teams, and kernels that reach the memory of all ranks.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "../../no_switches.hpp"
#include "../../team_multimem.hpp"
#include "driver/decorator.hpp"
#include "team_machine.hpp"

namespace cuvmm::team::test {

inline emulator::Configuration with_multicast(int ranks) {
  auto configuration = cuvmm::test::machine("h200-multicast", ranks);
  configuration.kernels = multimem_kernels();
  return configuration;
}

inline void exchange_by_multimem(Team& team, DeviceAddress multicast, const MappedRange& range, std::size_t own,
                                 std::uint64_t round) {
  EXPECT_TRUE(all_found_by_multimem(team, multicast, range, own, round, soon())) << "round " << round;
}
inline void exchange_by_multimem(const SymmetricMemory& memory, std::size_t offset, std::uint64_t round) {
  EXPECT_TRUE(all_found_by_multimem(memory, offset, round, soon())) << "round " << round;
}

// What all ranks of a team have done with one multicast object, to see that none is ahead of the others.
class StepsOfTeam {
 public:
  explicit StepsOfTeam(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  void creates() {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(bound_.empty() && mapped_.empty()) << "the object before has not been given back";
    added_ = 0;
  }
  void added() {
    const std::lock_guard lock(mutex_);
    ++added_;
  }
  void binds(int rank) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(added_, ranks_) << "rank " << rank << " binds before all devices were added";
  }
  void bound(int rank) {
    const std::lock_guard lock(mutex_);
    bound_.insert(rank);
  }
  void maps(int rank) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(bound_.size(), ranks_) << "rank " << rank << " maps before all have bound";
  }
  void mapped(int rank) {
    const std::lock_guard lock(mutex_);
    mapped_.insert(rank);
  }
  void unmapped(int rank) {
    const std::lock_guard lock(mutex_);
    mapped_.erase(rank);
  }
  void unbinds(int rank) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(mapped_.empty()) << "rank " << rank << " unbinds while others have the object mapped";
    bound_.erase(rank);
  }
  void releases_bound_memory(int rank) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(bound_.contains(rank)) << "rank " << rank << " releases memory that is bound";
  }

 private:
  std::mutex mutex_;
  const std::size_t ranks_;
  std::size_t added_ = 0;
  std::set<int> bound_;
  std::set<int> mapped_;
};

// Tells them of the calls of one rank. Its object is what it has added its device to.
class StepsDriver final : public driver::Decorator<StepsDriver> {
 public:
  StepsDriver(int rank, std::shared_ptr<driver::Interface> next, std::shared_ptr<StepsOfTeam> steps)
      : Decorator(std::move(next)), rank_(rank), steps_(std::move(steps)) {}

  abi::CUresult cuMulticastCreate(abi::CUmemGenericAllocationHandle* object,
                                  const abi::CUmulticastObjectProp* properties) override {
    steps_->creates();
    return next().cuMulticastCreate(object, properties);
  }
  abi::CUresult cuMulticastAddDevice(abi::CUmemGenericAllocationHandle object, abi::CUdevice device) override {
    const auto result = next().cuMulticastAddDevice(object, device);
    object_ = object;
    if (result == abi::CUDA_SUCCESS) steps_->added();
    return result;
  }
  abi::CUresult cuMulticastBindMem(abi::CUmemGenericAllocationHandle object, std::size_t offset,
                                   abi::CUmemGenericAllocationHandle memory, std::size_t memory_offset,
                                   std::size_t bytes, unsigned long long flags) override {
    steps_->binds(rank_);
    const auto result = next().cuMulticastBindMem(object, offset, memory, memory_offset, bytes, flags);
    if (result == abi::CUDA_SUCCESS) {
      steps_->bound(rank_);
      memory_ = memory;
    }
    return result;
  }
  abi::CUresult cuMemMap(abi::CUdeviceptr address, std::size_t bytes, std::size_t offset,
                         abi::CUmemGenericAllocationHandle handle, unsigned long long flags) override {
    const bool of_object = handle == object_;
    if (of_object) steps_->maps(rank_);
    const auto result = next().cuMemMap(address, bytes, offset, handle, flags);
    if (of_object && result == abi::CUDA_SUCCESS) {
      mapped_at_ = address;
      steps_->mapped(rank_);
    }
    return result;
  }
  abi::CUresult cuMemUnmap(abi::CUdeviceptr address, std::size_t bytes) override {
    const auto result = next().cuMemUnmap(address, bytes);
    if (address == mapped_at_ && result == abi::CUDA_SUCCESS) steps_->unmapped(rank_);
    return result;
  }
  abi::CUresult cuMulticastUnbind(abi::CUmemGenericAllocationHandle object, abi::CUdevice device, std::size_t offset,
                                  std::size_t bytes) override {
    steps_->unbinds(rank_);
    return next().cuMulticastUnbind(object, device, offset, bytes);
  }
  abi::CUresult cuMemRelease(abi::CUmemGenericAllocationHandle handle) override {
    if (handle == memory_) steps_->releases_bound_memory(rank_);
    if (handle == object_) object_ = 0;
    return next().cuMemRelease(handle);
  }

 private:
  const int rank_;
  const std::shared_ptr<StepsOfTeam> steps_;
  abi::CUmemGenericAllocationHandle object_ = 0;
  abi::CUmemGenericAllocationHandle memory_ = 0;
  abi::CUdeviceptr mapped_at_ = 0;
};

// A driver in which one entry point's calls do not return until they are let go.
class BlockingDriver final : public driver::Decorator<BlockingDriver> {
 public:
  BlockingDriver(std::shared_ptr<driver::Interface> next, driver::EntryPoint where)
      : Decorator(std::move(next)), where_(where) {}

  void block() { blocks_ = true; }
  void let_go() { blocks_ = false; }

  template <driver::EntryPoint entry, class... Arguments>
  abi::CUresult around(Arguments... arguments) {
    while (entry == where_ && blocks_) std::this_thread::sleep_for(1ms);
    return forward<entry>(arguments...);
  }

 private:
  const driver::EntryPoint where_;
  std::atomic<bool> blocks_ = false;
};

}  // namespace cuvmm::team::test
