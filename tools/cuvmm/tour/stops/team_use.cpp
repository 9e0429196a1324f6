#include "tour/stops/team_use.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cuvmm/copy.hpp"
#include "driver/convert.hpp"
#include "gpu/checksum.hpp"
#include "tour/content_checksum.hpp"
#include "tour/shares.hpp"

namespace cuvmm::tour {
namespace {

constexpr std::size_t counter_bytes = 4096;                 // behind the content
constexpr std::size_t most_at_once = std::size_t{8} << 20;  // of the input
constexpr std::size_t sample_bytes = std::size_t{64} << 10;
constexpr std::uint64_t most_polls = 100'000'000;

// bfloat16 is the upper half of a float. These numbers have no bits below.
std::uint16_t as_bfloat16(double number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(number)) >> 16);
}
double number_of(std::uint16_t bfloat16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat16) << 16);
}

// The nearest number of eight significant bits, ties to even.
double rounded_to_bfloat16(double number) {
  constexpr int bits = 8;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

// What rank `rank` has of a byte: each rank in another magnitude, so that no rank's part can stand for another's.
double number_of_rank(std::byte byte, std::size_t rank) {
  return std::ldexp(std::to_integer<int>(byte), static_cast<int>(rank));
}

}  // namespace

TeamUse::TeamUse(Visit& visit, const TeamDevices& devices, std::size_t ranks, std::size_t half)
    : visit_(visit),
      devices_(devices),
      name_(team_in_words(ranks)),
      content_bytes_(std::min(half - counter_bytes, most_at_once)),
      memory_(devices, {.ranks = ranks, .part_bytes = half}),
      object_(MulticastObject::create(visit.driver, {.devices = static_cast<unsigned>(ranks), .bytes = half})),
      shares_(visit.driver, ranks * content_bytes_),
      left_(visit.driver, ranks * sizeof(std::uint64_t)) {
  for (const TeamDevice* each : memory_.team()) object_.add_device(each->device());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    TeamDevice& device = memory_.device(rank);
    ranks_.push_back({&device, memory_of(device, half)});
    require_accepted(
        visit.checks, device.gpu().try_fill(own(rank) + half - counter_bytes, counter_bytes, 0),
        fmt::format("{}: clearing the counters in the memory of device {}", name_, device.gpu().ordinal()));
    memory_.bind(object_, rank);
  }
  memory_.map(object_);
}

TeamUse::~TeamUse() {
  for (const Rank& each : ranks_) each.device->gpu().finish_work();
}

std::string TeamUse::of(std::size_t rank) const {
  return fmt::format("device {}", ranks_[rank].device->gpu().ordinal());
}

void TeamUse::finish_all() const {
  for (const Rank& each : ranks_) each.device->finish();
}

void TeamUse::broadcast() {
  for (std::size_t root = 0; root < ranks_.size(); ++root) require_broadcast(visit_, memory_, root, name_);
}

void TeamUse::start_meeting(std::size_t rank, std::uint32_t epoch) {
  const std::size_t counter = memory_.bytes() - counter_bytes;
  ranks_[rank].device->start(MultimemMeet{memory_.addresses().at(counter), own(rank) + counter, epoch * ranks_.size(),
                                          most_polls, left_.address() + rank * sizeof(std::uint64_t)},
                             1);
}

void TeamUse::barrier() {
  ++epoch_;
  const std::size_t last = ranks_.size() - 1;
  for (std::size_t rank = 0; rank < last; ++rank) start_meeting(rank, epoch_);
  for (std::size_t rank = 0; rank < last; ++rank)
    visit_.checks.require(!ranks_[rank].device->is_idle(),
                          fmt::format("{}: {} stays in the barrier until the last rank has come", name_, of(rank)),
                          "it left before");
  start_meeting(last, epoch_);
  finish_all();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::uint32_t seen = 0;
    std::memcpy(&seen, left_.bytes().data() + rank * sizeof(std::uint64_t), sizeof seen);
    visit_.checks.require(seen >= epoch_ * ranks_.size(),
                          fmt::format("{}: all have come when {} leaves the barrier", name_, of(rank)),
                          fmt::format("{} of {} had", seen, epoch_ * ranks_.size()));
  }
}

void TeamUse::put(std::size_t rank, std::span<const std::byte> bytes) {
  ranks_[rank].device->gpu().make_current();
  copy_bytes_to_device(visit_.driver, memory_.part(rank, 0).address(), bytes);
}

void TeamUse::numbers() {
  const std::vector<std::byte> sample = sample_of_input(visit_.input, sample_bytes / sizeof(std::uint16_t));
  std::vector<std::uint16_t> numbers(sample.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t at = 0; at < sample.size(); ++at) numbers[at] = as_bfloat16(number_of_rank(sample[at], rank));
    put(rank, std::as_bytes(std::span(numbers)));
  }
  Rank& root = ranks_.front();
  const std::uint64_t words = words_of(sample_bytes);
  root.device->run(MultimemSumBfloat16{memory_.addresses().at(0), root.result.address().value, words}, words);
  root.device->gpu().copy(shares_.address(), root.result.address().value, sample_bytes);
  std::memcpy(numbers.data(), shares_.bytes().data(), sample_bytes);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < sample.size(); ++at) {
    double sum = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) sum += number_of_rank(sample[at], rank);
    wrong += number_of(numbers[at]) == rounded_to_bfloat16(sum) ? 0 : 1;
  }
  visit_.checks.require(wrong == 0,
                        fmt::format("{}: sums of bfloat16 are those of double precision, rounded once", name_),
                        fmt::format("{} of {} are others", wrong, sample.size()));
}

void TeamUse::fence() {
  const std::vector<std::byte> sample = sample_of_input(visit_.input, sample_bytes);
  ContentChecksum expected;
  expected.add(sample);
  std::copy(sample.begin(), sample.end(), shares_.bytes().begin());
  Rank& root = ranks_.front();
  const std::uint64_t words = words_of(sample.size());
  root.device->run(
      MultimemAlias{memory_.addresses().at(0), shares_.address(), own(0), root.result.address().value, words}, words);
  visit_.checks.require(
      root.device->gpu().checksum(root.result.address().value, sample.size(), 0) == expected.value(),
      fmt::format("{}: a kernel stores at the multicast address and, after the fence, loads it at the memory's own",
                  name_),
      "it saw something else");
}

bool TeamUse::grants() {
  if (devices_.size() == ranks_.size()) return false;
  abi::CUmemAccessDesc grant{};
  grant.location = driver::to_abi(devices_[ranks_.size()].gpu().location());
  grant.flags = abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  require_refused(
      visit_.checks,
      visit_.driver.interface().cuMemSetAccess(memory_.addresses().address().value, memory_.bytes(), &grant, 1),
      {abi::CUDA_ERROR_INVALID_DEVICE, abi::CUDA_ERROR_INVALID_VALUE},
      fmt::format("{}: granting access to a device that is not of it", name_));
  return true;
}

void TeamUse::reduce(std::uint64_t offset, std::span<const std::byte> piece) {
  const std::uint64_t first_word = offset / gpu::checksum_word_bytes;
  const std::uint64_t words = words_of(piece.size());
  const std::size_t bytes = words * gpu::checksum_word_bytes;
  const abi::CUdeviceptr multicast = memory_.addresses().at(0);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    write_share(rank, ranks_.size(), first_word, piece, shares_.bytes().subspan(slot(rank), bytes));
  // Each rank puts its share into its own memory, meets the others, and sums what all have put there; nobody changes it
  // before all have done so.
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    Rank& each = ranks_[rank];
    each.device->gpu().start_copy(each.device->stream(), own(rank), shares_.address() + slot(rank), bytes);
    start_meeting(rank, epoch_ + 1);
    each.device->start(MultimemSum{multicast, each.result.address().value, words}, words);
    start_meeting(rank, epoch_ + 2);
  }
  epoch_ += 2;
  ranks_.front().device->start(MultimemStore{multicast, ranks_.front().result.address().value, words}, words);
  finish_all();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    Rank& each = ranks_[rank];
    each.summed += each.device->gpu().checksum(each.result.address().value, piece.size(), first_word);
    each.stored += each.device->gpu().checksum(own(rank), piece.size(), first_word);
    require_success(each.device->gpu().try_fill(own(rank), bytes, 0));
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    ranks_[rank].device->start(MultimemAdd{multicast, shares_.address() + slot(rank), words}, words);
  finish_all();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    ranks_[rank].added += ranks_[rank].device->gpu().checksum(own(rank), piece.size(), first_word);
}

void TeamUse::require_success(abi::CUresult result) {
  if (result != abi::CUDA_SUCCESS) require_accepted(visit_.checks, result, "a kernel's store to memory that is bound");
}

void TeamUse::require_input() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& each = ranks_[rank];
    require_checksum(visit_, each.summed, fmt::format("{}: the sum of all shares is the input on {}", name_, of(rank)));
    require_checksum(visit_, each.stored,
                     fmt::format("{}: that sum, stored to all, is the input on {}", name_, of(rank)));
    require_checksum(visit_, each.added,
                     fmt::format("{}: shares that all add in memory are the input on {}", name_, of(rank)));
  }
}

}  // namespace cuvmm::tour
