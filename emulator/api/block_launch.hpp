// A running launch of a kernel that is written by blocks (HostKernel::run_block).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "emulator/api/translated_memory.hpp"
#include "emulator/api/watched_launch.hpp"
#include "emulator/execution/fiber.hpp"
#include "emulator/execution/outcome.hpp"

namespace cuvmm::emulator::api {

// Used by one thread at a time. Ending it unwinds the blocks that are not at their end.
class BlockLaunch {
 public:
  // The kernel lives longer.
  BlockLaunch(Machine& machine, const HostKernel& kernel, const KernelShape& shape, KernelArguments arguments,
              model::Accessor who);
  ~BlockLaunch();
  BlockLaunch(const BlockLaunch&) = delete;
  BlockLaunch& operator=(const BlockLaunch&) = delete;
  BlockLaunch(BlockLaunch&&) = delete;
  BlockLaunch& operator=(BlockLaunch&&) = delete;

  // Goes on with every block until it gives way or ends. After a fault there is nothing to go on with.
  execution::Outcome go_on();

 private:
  struct Block {
    std::unique_ptr<execution::Fiber> fiber;  // from its first turn on until its end
    bool ended = false;
  };

  void go_on_with(unsigned index);
  [[nodiscard]] execution::Outcome conclude();
  [[nodiscard]] execution::Outcome fault(abi::CUresult code, const std::string& why) const;

  Machine& machine_;
  const HostKernel& kernel_;
  const KernelShape shape_;
  const KernelArguments arguments_;
  WatchedLaunch watched_;
  TranslatedMemory memory_;
  std::vector<Block> blocks_;
  std::size_t unfinished_;
};

}  // namespace cuvmm::emulator::api
