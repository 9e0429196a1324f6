#include "emulator/api/block_launch.hpp"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "emulator/multimem.hpp"

namespace cuvmm::emulator::api {

using execution::Fiber;
using execution::Outcome;

BlockLaunch::BlockLaunch(Machine& machine, const HostKernel& kernel, const KernelShape& shape,
                         KernelArguments arguments, model::Accessor who)
    : machine_(machine),
      kernel_(kernel),
      shape_(shape),
      arguments_(std::move(arguments)),
      watched_(machine.aliases(), who.ordinal()),
      memory_(machine, watched_.launch(), who),
      blocks_(std::size_t{shape.grid[0]} * shape.grid[1] * shape.grid[2]),
      unfinished_(blocks_.size()) {}

BlockLaunch::~BlockLaunch() {
  for (Block& block : blocks_) {
    if (block.fiber == nullptr) continue;
    memory_.use(*block.fiber);  // should the body give way once more
    block.fiber = nullptr;
  }
}

Outcome BlockLaunch::go_on() {
  const std::size_t before = unfinished_;
  try {
    for (std::size_t index = 0; index < blocks_.size(); ++index)
      if (!blocks_[index].ended) go_on_with(static_cast<unsigned>(index));
  } catch (const multimem::Fault& thrown) {
    const Rule rule = memory_.refusal().rule;
    const bool of_multicast = rule == Rule::multicast_multimem_only || rule == Rule::multimem_address;
    if (of_multicast && machine_.configuration().is_off(text(rule).id)) return Outcome::done();
    return fault(
        thrown.kind() == multimem::Fault::Kind::misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS,
        thrown.what());
  } catch (const std::bad_alloc& error) {  // some blocks have begun, so the launch is not tried again
    return fault(CUDA_ERROR_LAUNCH_FAILED, error.what());
  }
  const bool wrote = memory_.take_wrote();
  if (Outcome outcome = conclude(); outcome.state == Outcome::State::fault) return outcome;
  if (unfinished_ == 0) return Outcome::done();
  return wrote || unfinished_ < before ? Outcome::advanced() : Outcome::again();
}

void BlockLaunch::go_on_with(unsigned index) {
  Block& block = blocks_[index];
  if (block.fiber == nullptr)
    block.fiber = std::make_unique<Fiber>([this, index](Fiber&) {
      kernel_.run_block({arguments_, shape_, index, static_cast<unsigned>(blocks_.size()), memory_});
    });
  memory_.use(*block.fiber);
  block.ended = block.fiber->resume();
  if (!block.ended) return;
  block.fiber = nullptr;
  --unfinished_;
}

// What is looked at whenever the launch gives way.
Outcome BlockLaunch::conclude() {
  if (!memory_.forget()) return fault(CUDA_ERROR_ILLEGAL_ADDRESS, "memory was unmapped while it ran");
  if (!memory_.finding()) return Outcome::done();
  const Answer refused = machine_.tolerated(Rule::alias_fence, *memory_.finding());
  if (refused.ok()) return Outcome::done();
  return fault(CUDA_ERROR_LAUNCH_FAILED, fmt::format("{}: {}", text(refused.rule).id, refused.detail));
}

Outcome BlockLaunch::fault(abi::CUresult code, const std::string& why) const {
  return Outcome::fault(code, fmt::format("kernel {}: {}", kernel_.name, why));
}

}  // namespace cuvmm::emulator::api
