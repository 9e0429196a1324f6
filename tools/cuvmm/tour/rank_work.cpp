#include "tour/rank_work.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "cuvmm/team/multicast_team.hpp"
#include "driver/call.hpp"
#include "gpu/checksum.hpp"
#include "tour/shares.hpp"
#include "tour/stop.hpp"
#include "tour/team_memory.hpp"

namespace cuvmm::tour {
namespace {

using team::Deadline;
using team::MulticastTeam;
using team::Team;

constexpr std::size_t counter_bytes = 4096;  // of the barrier, behind the content
constexpr std::uint64_t most_polls = 100'000'000;

Deadline in_time() {
  return Deadline::in(std::chrono::minutes(1));
}

class RankWork {
 public:
  RankWork(std::unique_ptr<team::Bootstrap> bootstrap, Gpu& gpu, std::size_t bytes)
      : device_(gpu),
        team_(Team::assemble(std::move(bootstrap), gpu.device(), in_time())),
        types_(team_->is_on_one_node() ? HandleTypes(HandleType::posix_file_descriptor)
                                       : HandleType::posix_file_descriptor | HandleType::fabric),
        content_bytes_(bytes - counter_bytes),
        own_(memory_of(device_, bytes, types_)),
        result_(memory_of(device_, bytes)),
        host_(gpu.device().driver(), bytes),
        left_(gpu.device().driver(), sizeof(std::uint64_t)),
        object_(MulticastTeam::create(team_, bytes, {.memory = own_.properties()}, in_time())) {
    clear(content_bytes_, counter_bytes);
    object_.bind(0, own_.memory_at(0), 0, bytes, in_time());
  }
  RankWork(const RankWork&) = delete;
  RankWork& operator=(const RankWork&) = delete;
  RankWork(RankWork&&) = delete;
  RankWork& operator=(RankWork&&) = delete;
  ~RankWork() { device_.gpu().finish_work(); }

  [[nodiscard]] std::size_t most_bytes() const noexcept { return content_bytes_; }

  // As TeamUse::reduce, in which one process has all ranks.
  void reduce(std::uint64_t offset, std::span<const std::byte> piece, RankSums& sums) {
    const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
    const std::uint64_t words = words_of(piece.size());
    const std::size_t bytes = words * gpu::checksum_word_bytes;
    const abi::CUdeviceptr all = object_.address().value;
    const abi::CUdeviceptr own = own_.address().value;
    const abi::CUdeviceptr result = result_.address().value;
    write_share(rank(), ranks(), first_word, piece, host_.bytes().first(bytes));

    device_.gpu().start_copy(device_.stream(), own, host_.address(), bytes);
    meet();  // all shares are there
    device_.run(MultimemSum{all, result, words}, words);
    meet();  // all have read them
    if (rank() == 0) device_.run(MultimemStore{all, result, words}, words);
    meet();  // the sum is everywhere
    sums.summed += device_.gpu().checksum(result, piece.size(), first_word);
    sums.stored += device_.gpu().checksum(own, piece.size(), first_word);
    clear(0, bytes);
    meet();  // all is cleared
    device_.run(MultimemAdd{all, host_.address(), words}, words);
    meet();  // all have added
    sums.added += device_.gpu().checksum(own, piece.size(), first_word);
    meet();  // all have looked
  }

  void close() { object_.close(in_time()); }

 private:
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(team_->rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(team_->size()); }

  void clear(std::size_t offset, std::size_t bytes) {
    const abi::CUresult cleared = device_.gpu().try_fill((own_.address() + offset).value, bytes, 0);
    if (cleared == abi::CUDA_SUCCESS) return;
    raise(driver::describe_failure(device_.device().driver().interface(), driver::EntryPoint::cuCtxSynchronize, cleared,
                                   "", {}));
  }

  void meet() {
    const std::uint64_t expected = ++epoch_ * ranks();
    device_.run(MultimemMeet{object_.address(content_bytes_).value, (own_.address() + content_bytes_).value, expected,
                             most_polls, left_.address()},
                1);
    std::uint32_t seen = 0;
    std::memcpy(&seen, left_.bytes().data(), sizeof seen);
    if (seen < expected)
      throw std::runtime_error(
          fmt::format("rank {} left barrier {} when {} of {} had come", rank(), epoch_, seen, expected));
  }

  TeamDevice device_;
  std::shared_ptr<Team> team_;
  HandleTypes types_;
  std::size_t content_bytes_;
  MappedRange own_;
  MappedRange result_;
  ReachableHostMemory host_;
  ReachableHostMemory left_;  // what the counter was when this rank left the barrier
  MulticastTeam object_;
  std::uint64_t epoch_ = 0;
};

}  // namespace

RankSums reduce_as_rank(std::unique_ptr<team::Bootstrap> bootstrap, Gpu& gpu, const InputFile& input,
                        std::size_t bytes) {
  gpu.make_current();
  RankWork work(std::move(bootstrap), gpu, bytes);
  RankSums sums;
  read_pieces(input, work.most_bytes(),
              [&](std::uint64_t offset, std::span<std::byte> piece) { work.reduce(offset, piece, sums); });
  work.close();
  return sums;
}

}  // namespace cuvmm::tour
