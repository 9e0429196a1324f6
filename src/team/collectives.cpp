#include "cuvmm/team/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "clean_up.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "gpu/all_reduce_choice.hpp"
#include "gpu/collective_launcher.hpp"
#include "gpu/meeting_memory.hpp"
#include "refusal.hpp"
#include "report_exception.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::team {

using driver::call;
using driver::EntryPoint;
using gpu::CollectiveShape;

namespace {

constexpr std::string_view creating = "Collectives::create";

gpu::CollectiveOptions room(const CollectivesOptions& options) {
  return {.blocks = options.blocks,
          .lines_per_block = options.lines_per_block,
          .staging_bytes = options.staging_bytes,
          .time_limit = options.time_limit};
}

Bytes encode(const CollectivesOptions& options) {
  return sharing::Writer()
      .number(options.blocks)
      .number(options.lines_per_block)
      .number(std::uint64_t{options.staging_bytes})
      .number(static_cast<std::uint64_t>(options.time_limit.count()))
      .number(static_cast<std::uint8_t>(options.multicast))
      .take();
}

// What this rank can tell before the others.
Result<Bytes> request(const Team& team, const CollectivesOptions& options) {
  if (auto refusal = gpu::refusal_of(creating, room(options), static_cast<std::size_t>(team.size()))) return *refusal;
  return encode(options);
}

// A shape for that many bytes: 16 at once a thread, as far as there are blocks.
CollectiveShape shape_for(const gpu::Team& team, std::size_t bytes) {
  constexpr unsigned threads = 256;
  const std::uint64_t wanted = bytes / (threads * sizeof(gpu::Pack)) + 1;
  return {static_cast<unsigned>(std::min<std::uint64_t>(wanted, team.blocks)), threads};
}

}  // namespace

class Collectives::Impl {
 public:
  Impl(SymmetricMemory meeting, const gpu::MeetingMemory& layout)
      : device_(meeting.team()->device()), launcher_(device_), meeting_(std::move(meeting)), layout_(layout) {
    const CurrentContext own(device_);
    const int rank = meeting_.team()->rank();
    call<EntryPoint::cuMemsetD8>(device_.driver().interface(), meeting_.address(rank).value,
                                 static_cast<unsigned char>(0), layout_.zero_bytes());
    own.synchronize();  // a memset may return before it is done
  }

  // As far as the device still works.
  void wait_for_device() const {
    const CurrentContext own(device_);
    own.synchronize();
  }

  [[nodiscard]] gpu::Team team() const {
    std::vector<DeviceAddress> of;
    of.reserve(static_cast<std::size_t>(meeting_.team()->size()));
    for (int rank = 0; rank < meeting_.team()->size(); ++rank) of.push_back(meeting_.address(rank));
    return layout_.team(static_cast<std::uint32_t>(meeting_.team()->rank()), of,
                        meeting_.multicast_address().value_or(DeviceAddress()));
  }

  [[nodiscard]] std::uint32_t missing() const {
    const CurrentContext own(device_);
    own.synchronize();
    std::vector<gpu::BlockState> states(team().blocks);
    copy_from_device(states, meeting_.range(), meeting_.offset_in_range(meeting_.team()->rank(), layout_.states()));
    std::uint32_t all = 0;
    for (const gpu::BlockState& each : states) all |= each.missing;
    return all;
  }

  // Where the ranks' bytes are, of `size` bytes each: refused where they are not within the parts.
  template <class T>
  void find(const char* call, const SymmetricBytes& bytes, std::size_t size, T* (&addresses)[gpu::max_ranks]) const {
    if (bytes.memory.team() != meeting_.team())
      raise(invalid_use(call, {}, "Collectives work on symmetric memory of their own team",
                        "Create both of the same std::shared_ptr<Team>"));
    for (int rank = 0; rank < meeting_.team()->size(); ++rank) {
      addresses[rank] = bytes.memory.address(rank, bytes.offset).template as_pointer<T>();
      (void)bytes.memory.address(rank, size <= bytes.memory.size() ? bytes.offset + size : size);
    }
  }

  // Where those of all ranks are reached at once; null where they are not.
  template <class T>
  static T* find_multicast(const SymmetricBytes& bytes, std::size_t size) {
    const std::size_t reached = bytes.memory.multicast_size();
    if (size > reached || bytes.offset > reached - size) return nullptr;
    return bytes.memory.multicast_address(bytes.offset).value_or(DeviceAddress()).template as_pointer<T>();
  }

  Device device_;
  gpu::CollectiveLauncher launcher_;
  SymmetricMemory meeting_;
  gpu::MeetingMemory layout_;
};

Collectives::Collectives(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Collectives::Collectives(Collectives&&) noexcept = default;

Collectives& Collectives::operator=(Collectives&& other) noexcept {
  if (this == &other) return *this;
  const Collectives previous(std::move(*this));  // ended at the end of this function
  impl_ = std::move(other.impl_);
  return *this;
}

Collectives::~Collectives() {
  if (!impl_) return;
  try {
    impl_->wait_for_device();
  } catch (...) {
    report_current_exception("Collectives::~Collectives");
  }
}

Result<Collectives> Collectives::try_create(const std::shared_ptr<Team>& team, const CollectivesOptions& options,
                                            const Deadline& deadline) {
  if (!team) return owns_nothing(creating, "team");
  const auto said = team->try_agree("collectives: request", request(*team, options), deadline);
  if (!said) return said.failure();
  for (std::size_t rank = 1; rank < said->size(); ++rank)
    if ((*said)[rank] != (*said)[0])
      return invalid_use(creating, fmt::format("rank {} has other options than rank 0", rank),
                         "The options are the same on all ranks", "Pass the same numbers on all ranks");
  const gpu::MeetingMemory layout(room(options), static_cast<std::uint32_t>(team->size()));
  auto meeting = SymmetricMemory::try_create(team, layout.bytes(), {.multicast = options.multicast}, deadline);
  if (!meeting) return meeting.failure();
  std::unique_ptr<Impl> impl;
  Result<void> mine;
  try {
    impl = std::make_unique<Impl>(std::move(meeting).value(), layout);
  } catch (const Error& error) {
    mine = error.failure();
  }
  if (auto all = team->try_vote("collectives: kernels and zeros", mine, deadline); !all) return all.failure();
  return Collectives(std::move(impl));
}

Collectives::Impl& Collectives::impl(const char* call) const {
  if (!impl_) raise(owns_nothing(call, "collectives"));
  return *impl_;
}

template <class T>
void Collectives::all_reduce(CUstream_st* stream, const SymmetricBytes& input, const SymmetricBytes& output,
                             std::size_t count, const std::optional<AllReducePlan>& plan) {
  constexpr const char* name = "Collectives::all_reduce";
  Impl& own = impl(name);
  gpu::AllReduce<T> call{};
  call.team = own.team();
  call.count = count;
  const std::size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
  own.find(name, input, bytes, call.inputs);
  own.find(name, output, bytes, call.outputs);
  call.multicast_input = Impl::find_multicast<const T>(input, bytes);
  call.multicast_output = Impl::find_multicast<T>(output, bytes);
  gpu::AllReduceChoice choice = gpu::choose_all_reduce(call.team, bytes);
  if (plan) choice = {plan->way, {plan->blocks, plan->threads}};
  own.launcher_.all_reduce(stream, choice.way, call, choice.shape);
}
template void Collectives::all_reduce<float>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&, std::size_t,
                                             const std::optional<AllReducePlan>&);
template void Collectives::all_reduce<gpu::float16>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&,
                                                    std::size_t, const std::optional<AllReducePlan>&);
template void Collectives::all_reduce<gpu::bfloat16>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&,
                                                     std::size_t, const std::optional<AllReducePlan>&);
template void Collectives::all_reduce<std::int32_t>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&,
                                                    std::size_t, const std::optional<AllReducePlan>&);
template void Collectives::all_reduce<std::uint32_t>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&,
                                                     std::size_t, const std::optional<AllReducePlan>&);
template void Collectives::all_reduce<std::uint64_t>(CUstream_st*, const SymmetricBytes&, const SymmetricBytes&,
                                                     std::size_t, const std::optional<AllReducePlan>&);

void Collectives::broadcast(CUstream_st* stream, int root, const SymmetricBytes& input, const SymmetricBytes& output,
                            std::size_t bytes, bool multicast) {
  constexpr const char* name = "Collectives::broadcast";
  Impl& own = impl(name);
  const std::uint8_t* inputs[gpu::max_ranks] = {};
  gpu::Broadcast call{};
  call.team = own.team();
  call.root = static_cast<std::uint32_t>(root);
  call.bytes = bytes;
  own.find(name, input, bytes, inputs);
  own.find(name, output, bytes, call.outputs);
  if (call.root < call.team.ranks) call.input = inputs[call.root];
  call.multicast_output = Impl::find_multicast<std::uint8_t>(output, bytes);
  own.launcher_.broadcast(stream, call, shape_for(call.team, bytes), multicast);
}

void Collectives::all_gather(CUstream_st* stream, const SymmetricBytes& input, const SymmetricBytes& output,
                             std::size_t bytes, bool multicast) {
  constexpr const char* name = "Collectives::all_gather";
  Impl& own = impl(name);
  gpu::AllGather call{};
  call.team = own.team();
  call.bytes = bytes;
  const std::size_t ranks = call.team.ranks;
  own.find(name, input, bytes, call.inputs);
  const std::size_t all = bytes > SIZE_MAX / ranks ? SIZE_MAX : bytes * ranks;
  own.find(name, output, all, call.outputs);
  call.multicast_output = Impl::find_multicast<std::uint8_t>(output, all);
  own.launcher_.all_gather(stream, call, shape_for(call.team, bytes), multicast);
}

void Collectives::barrier(CUstream_st* stream, bool multicast) {
  Impl& own = impl("Collectives::barrier");
  own.launcher_.barrier(stream, own.team(), {1, 32}, multicast);
}

std::uint32_t Collectives::missing() const {
  return impl("Collectives::missing").missing();
}
bool Collectives::can_meet_by_multicast() const {
  return impl("Collectives::can_meet_by_multicast").meeting_.multicast_address().has_value();
}
const std::optional<Failure>& Collectives::why_no_multicast() const {
  return impl("Collectives::why_no_multicast").meeting_.why_no_multicast();
}

Result<void> Collectives::try_close(const Deadline& deadline) {
  if (!impl_) return owns_nothing("Collectives::close", "collectives");
  if (auto closed = impl_->meeting_.try_close(deadline); !closed) return closed;
  impl_.reset();
  return {};
}

}  // namespace cuvmm::team
