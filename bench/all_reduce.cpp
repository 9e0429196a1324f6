// All-reduce between two GPUs that reach each other's memory, without multicast: every way and shape of launch at each
// size, timed as captured graphs, beside the rate of the link, which is how fast kernels on both GPUs read each other's
// memory at the same time. One process; no other library. Each result is checked.
//
//   cuvmm_all_reduce_bench [--type bf16|f32] [--from BYTES] [--to BYTES] [--rounds N] [--way NAME]
//                          [--chosen] [--all] [--in-place]
//
// Prints, for each size, the fastest launch of each way; with --all every launch, with --chosen the one that is chosen
// by size, with staging buffers of the size that teams have.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cuvmm/cuvmm.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "driver/call.hpp"
#include "gpu/all_reduce_choice.hpp"
#include "gpu/device_team.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/kernel_signatures.hpp"

namespace {

using namespace cuvmm;
using namespace cuvmm::gpu;
using driver::call;
using driver::EntryPoint;

struct Settings {
  std::string_view type = "bf16";
  std::size_t from = 1_KiB;
  std::size_t to = 512_MiB;
  int rounds = 9;
  std::string_view way{};  // that one alone, by its name
  bool chosen = false;     // the one way and shape that choose_all_reduce() answers
  bool all = false;
  bool in_place = false;
};

// The median of what several rounds took, the slowest rank of each.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Event {
 public:
  explicit Event(driver::Interface& api) : api_(api) {
    call<EntryPoint::cuEventCreate>(api_, &event_, abi::CU_EVENT_DEFAULT);
  }
  ~Event() { static_cast<void>(driver::try_call<EntryPoint::cuEventDestroy>(api_, event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&&) = delete;
  Event& operator=(Event&&) = delete;

  [[nodiscard]] abi::CUevent handle() const { return event_; }

 private:
  driver::Interface& api_;
  abi::CUevent event_ = nullptr;
};

// The same work on every rank's stream, captured once and replayed.
class RankGraphs {
 public:
  RankGraphs(const DeviceTeam& team, driver::Interface& api, const std::function<void(std::uint32_t)>& work)
      : team_(team), api_(api) {
    for (std::uint32_t rank = 0; rank < team.ranks(); ++rank) {
      const OnRank here(team, rank);
      call<EntryPoint::cuStreamBeginCapture>(api_, team.stream(rank), abi::CU_STREAM_CAPTURE_MODE_RELAXED);
      work(rank);
      abi::CUgraph graph = nullptr;
      call<EntryPoint::cuStreamEndCapture>(api_, team.stream(rank), &graph);
      abi::CUgraphExec ready = nullptr;
      call<EntryPoint::cuGraphInstantiateWithFlags>(api_, &ready, graph, 0ULL);
      call<EntryPoint::cuGraphDestroy>(api_, graph);
      call<EntryPoint::cuGraphUpload>(api_, ready, team.stream(rank));
      graphs_.push_back(ready);
      before_.push_back(std::make_unique<Event>(api_));
      after_.push_back(std::make_unique<Event>(api_));
    }
    team_.synchronize();
  }
  ~RankGraphs() {
    for (const abi::CUgraphExec each : graphs_)
      static_cast<void>(driver::try_call<EntryPoint::cuGraphExecDestroy>(api_, each));
  }
  RankGraphs(const RankGraphs&) = delete;
  RankGraphs& operator=(const RankGraphs&) = delete;
  RankGraphs(RankGraphs&&) = delete;
  RankGraphs& operator=(RankGraphs&&) = delete;

  // Milliseconds of the slowest rank.
  double replay() const {
    for (std::uint32_t rank = 0; rank < team_.ranks(); ++rank) {
      const OnRank here(team_, rank);
      call<EntryPoint::cuEventRecord>(api_, before_[rank]->handle(), team_.stream(rank));
      call<EntryPoint::cuGraphLaunch>(api_, graphs_[rank], team_.stream(rank));
      call<EntryPoint::cuEventRecord>(api_, after_[rank]->handle(), team_.stream(rank));
    }
    team_.synchronize();
    double slowest = 0;
    for (std::uint32_t rank = 0; rank < team_.ranks(); ++rank) {
      const OnRank here(team_, rank);
      float milliseconds = 0;
      call<EntryPoint::cuEventElapsedTime>(api_, &milliseconds, before_[rank]->handle(), after_[rank]->handle());
      slowest = std::max(slowest, static_cast<double>(milliseconds));
    }
    return slowest;
  }

 private:
  const DeviceTeam& team_;
  driver::Interface& api_;
  std::vector<abi::CUgraphExec> graphs_;
  std::vector<std::unique_ptr<Event>> before_;
  std::vector<std::unique_ptr<Event>> after_;
};

// How fast kernels read the other rank's memory, GB/s of each direction: one rank alone, or both at the same time.
double link_rate(const DeviceTeam& team, const Driver& driver, bool both, int rounds) {
  constexpr std::size_t bytes = 512_MiB;
  constexpr std::size_t tile = 256_KiB;
  constexpr int passes = 4;
  driver::Interface& api = driver.interface();
  const auto memory = team.allocate(bytes);
  const auto states = team.allocate(4096);
  std::vector<abi::CUfunction> reads(team.ranks());
  for (std::uint32_t rank = 0; rank < team.ranks(); ++rank) {
    const OnRank here(team, rank);
    abi::CUmodule module = nullptr;
    call<EntryPoint::cuModuleLoadData>(api, &module, kernel_image().data());
    call<EntryPoint::cuModuleGetFunction>(api, &reads[rank], module, std::string(ReadParameters::kernel).c_str());
  }
  const RankGraphs graphs(team, api, [&](std::uint32_t rank) {
    if (!both && rank != 0) return;
    const DeviceAddress state = states[rank].address();
    call<EntryPoint::cuMemsetD8Async>(api, state.value, static_cast<unsigned char>(0), std::size_t{64},
                                      team.stream(rank));
    ReadParameters parameters{memory[1 - rank].address().value, bytes, tile, passes * bytes / tile, state.value,
                              (state + sizeof(ReadState)).value};
    auto list = arguments(parameters);
    call<EntryPoint::cuLaunchKernel>(api, reads[rank], 1056U, 1U, 1U, 256U, 1U, 1U, 0U, team.stream(rank), list.data(),
                                     nullptr);
  });
  std::vector<double> times;
  for (int round = 0; round < rounds + 2; ++round) {
    const double time = graphs.replay();
    if (round >= 2) times.push_back(time);
  }
  return static_cast<double>(passes) * static_cast<double>(bytes) / median(times) / 1e6;
}

struct Candidate {
  AllReduceWay way;
  unsigned blocks;
  unsigned threads;
  std::size_t staging_bytes = 0;  // of staged ways
};

struct Outcome {
  Candidate candidate;
  double microseconds;
  bool is_right;
};

template <class T>
class Contest {
 public:
  Contest(const Driver& driver, const DeviceTeam& team, const Settings& settings)
      : api_(driver.interface()),
        team_(team),
        settings_(settings),
        inputs_(team.allocate(settings.to)),
        outputs_(team.allocate(settings.to)) {
    // Small numbers, so that every sum is exact, and of which a wrong order, place or round shows.
    for (std::uint32_t rank = 0; rank < team.ranks(); ++rank) {
      const OnRank here(team, rank);
      copy_to_device(inputs_[rank], 0, content(rank));
    }
  }

  void run() {
    fmt::print("{:>11}  {:>9}  {:<15} {:>6} {:>7} {:>7}  {:>8}  {}\n", "bytes", "us", "way", "blocks", "threads",
               "staging", "GB/s", "result");
    for (std::size_t bytes = settings_.from; bytes <= settings_.to; bytes *= 2) run(bytes);
  }

 private:
  [[nodiscard]] std::vector<T> content(std::uint32_t rank) const {
    std::vector<T> values(settings_.to / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
    return values;
  }
  static T value(std::uint32_t rank, std::size_t index) {
    const float small = static_cast<float>((index * 7 + std::size_t{rank} * 31 + index / 4096) % 61);
    if constexpr (std::is_same_v<T, float>)
      return small;
    else
      return T::from(small);
  }
  static bool are_same(T one, T other) {
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
    return bits_as<Bits>(one) == bits_as<Bits>(other);
  }
  static T sum_of(std::size_t index) {
    if constexpr (std::is_same_v<T, float>)
      return value(0, index) + value(1, index);
    else
      return T::from(value(0, index).to_float() + value(1, index).to_float());
  }

  [[nodiscard]] std::vector<Candidate> candidates(std::size_t bytes) const {
    std::vector<Candidate> all;
    if (settings_.chosen) {
      const AllReduceChoice choice = choose_all_reduce(team_.team(0), bytes);
      return {{choice.way, choice.shape.blocks, choice.shape.threads}};
    }
    for (const unsigned threads : {128U, 256U, 512U})
      for (const unsigned blocks : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 132U}) add_candidates(all, bytes, blocks, threads);
    return all;
  }
  // Leaves out shapes with far too many or too few threads for that much.
  void add_candidates(std::vector<Candidate>& all, std::size_t bytes, unsigned blocks, unsigned threads) const {
    const std::uint64_t packs = bytes / sizeof(Pack);
    const std::uint64_t all_threads = std::uint64_t{blocks} * threads;
    if (all_threads > 2 * std::max<std::uint64_t>(packs, 64)) return;
    const auto add = [&](AllReduceWay way, std::size_t staging = 0) {
      if (settings_.way.empty() || settings_.way == name_of(way)) all.push_back({way, blocks, threads, staging});
    };
    if (bytes / sizeof(T) <= flagged_capacity<T>(blocks, team_.options().lines_per_block, threads) && bytes <= 2_MiB)
      add(AllReduceWay::flagged);
    if (all_threads * std::uint64_t{128} < packs && all_threads < 33'000) return;
    if (bytes >= 128_KiB && bytes <= 8_MiB) add(AllReduceWay::staged_one_shot, bytes);
    if (bytes >= 256_KiB) {
      for (const std::size_t staging : {std::size_t{16_MiB}, std::size_t{64_MiB}, std::size_t{256_MiB}}) {
        add(AllReduceWay::staged_two_shot, staging);
        if (staging >= bytes / 2) break;  // more would be the same
      }
    }
    add(AllReduceWay::one_shot);
    add(AllReduceWay::two_shot);
  }

  [[nodiscard]] AllReduce<T> arguments_of(std::uint32_t rank, std::size_t bytes, const Candidate& candidate) const {
    AllReduce<T> arguments{};
    arguments.team = team_.team(rank);
    arguments.count = bytes / sizeof(T);
    if (candidate.staging_bytes != 0) arguments.team.staging_packs = candidate.staging_bytes / sizeof(Pack);
    const bool in_place = settings_.in_place && candidate.way != AllReduceWay::one_shot;
    for (std::uint32_t of = 0; of < team_.ranks(); ++of) {
      arguments.inputs[of] = reinterpret_cast<const T*>(inputs_[of].address().value);
      arguments.outputs[of] = reinterpret_cast<T*>((in_place ? inputs_ : outputs_)[of].address().value);
    }
    return arguments;
  }

  void give(std::uint32_t rank, std::size_t bytes, const Candidate& candidate) const {
    team_.launch(rank, all_reduce_kernel<T>(candidate.way), arguments_of(rank, bytes, candidate), candidate.blocks,
                 candidate.threads);
  }

  Outcome measure(std::size_t bytes, const Candidate& candidate) {
    const int calls = bytes <= 256_KiB ? 100 : bytes <= 16_MiB ? 30 : 6;
    const RankGraphs graphs(team_, api_, [&](std::uint32_t rank) {
      for (int i = 0; i < calls; ++i) give(rank, bytes, candidate);
    });
    std::vector<double> times;
    for (int round = 0; round < settings_.rounds + 2; ++round) {
      const double time = graphs.replay();
      if (round >= 2) times.push_back(time * 1000 / calls);
    }
    return {candidate, median(times), is_right(bytes, candidate)};
  }

  // The first and the last elements, where mistakes of ends and parts would show, of one more call; not of calls in
  // place, which have changed their input many times.
  bool is_right(std::size_t bytes, const Candidate& candidate) const {
    if (settings_.in_place && candidate.way != AllReduceWay::one_shot) return team_.missing(0) == 0;
    bool right = true;
    const std::size_t count = bytes / sizeof(T);
    for (std::uint32_t rank = 0; rank < team_.ranks(); ++rank) {
      const OnRank here(team_, rank);
      call<EntryPoint::cuMemsetD8>(api_, outputs_[rank].address().value, static_cast<unsigned char>(0xEE), bytes);
      CurrentContext(team_.device(rank)).synchronize();
    }
    for (std::uint32_t rank = 0; rank < team_.ranks(); ++rank) give(rank, bytes, candidate);
    team_.synchronize();
    for (std::uint32_t rank = 0; rank < team_.ranks(); ++rank) {
      const OnRank here(team_, rank);
      right = right && team_.missing(rank) == 0;
      const std::size_t some = std::min<std::size_t>(count, 1 << 18);
      for (const std::size_t begin : {std::size_t{0}, (count - some) / 2, count - some}) {
        std::vector<T> got(some);
        copy_from_device(got, outputs_[rank], begin * sizeof(T));
        for (std::size_t i = 0; i < some; ++i) {
          const T expected = sum_of(begin + i);
          if (!are_same(got[i], expected)) return false;
        }
      }
    }
    return right;
  }

  void run(std::size_t bytes) {
    std::vector<Outcome> outcomes;
    for (const Candidate& each : candidates(bytes)) outcomes.push_back(measure(bytes, each));
    std::stable_sort(outcomes.begin(), outcomes.end(),
                     [](const Outcome& a, const Outcome& b) { return a.microseconds < b.microseconds; });
    std::vector<AllReduceWay> shown;
    for (const Outcome& each : outcomes) {
      // The fastest of each way; all of them if asked.
      if (!settings_.all && std::find(shown.begin(), shown.end(), each.candidate.way) != shown.end() && each.is_right)
        continue;
      shown.push_back(each.candidate.way);
      fmt::print("{:>11}  {:>9.2f}  {:<15} {:>6} {:>7} {:>7}  {:>8.1f}  {}\n", bytes, each.microseconds,
                 name_of(each.candidate.way), each.candidate.blocks, each.candidate.threads,
                 each.candidate.staging_bytes >> 20, static_cast<double>(bytes) / each.microseconds / 1e3,
                 each.is_right ? "right" : "WRONG");
    }
    std::fflush(stdout);
  }

  driver::Interface& api_;
  const DeviceTeam& team_;
  const Settings& settings_;
  std::vector<MappedRange> inputs_;
  std::vector<MappedRange> outputs_;
};

std::optional<Settings> settings_from(int count, char** words) {
  Settings settings;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--all") {
      settings.all = true;
      continue;
    }
    if (word == "--chosen") {
      settings.chosen = true;
      continue;
    }
    if (word == "--in-place") {
      settings.in_place = true;
      continue;
    }
    if (i + 1 == count) return std::nullopt;
    const std::string_view value = words[++i];
    std::size_t number = 0;
    const bool is_number = std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc{};
    if (word == "--type" && (value == "bf16" || value == "f32"))
      settings.type = value;
    else if (word == "--way")
      settings.way = value;
    else if (word == "--from" && is_number && number >= 16)
      settings.from = number;
    else if (word == "--to" && is_number)
      settings.to = number;
    else if (word == "--rounds" && is_number && number > 0)
      settings.rounds = static_cast<int>(number);
    else
      return std::nullopt;
  }
  if (settings.from > settings.to) return std::nullopt;
  return settings;
}

int run(const Settings& settings) {
  const Driver driver = Driver::cuda();
  if (!kernel_image_runs_on_gpus() || driver.device_count() < 2) {
    fmt::print(stderr, "cuvmm_all_reduce_bench: needs two GPUs, and a build with nvcc\n");
    return 77;
  }
  const std::vector devices{DeviceOrdinal{0}, DeviceOrdinal{1}};
  const DeviceTeam team(driver, devices,
                        settings.chosen ? DeviceTeamOptions{} : DeviceTeamOptions{.staging_bytes = 256_MiB});
  fmt::print("{}\nType {}, {} rounds, medians of the slower rank; a graph has 100, 30 or 6 calls.\n",
             driver.description(), settings.type, settings.rounds);
  fmt::print("Link, kernel reads of {} MiB: one way {:.1f} GB/s, both at the same time {:.1f} GB/s each\n", 512,
             link_rate(team, driver, false, settings.rounds), link_rate(team, driver, true, settings.rounds));
  std::fflush(stdout);
  if (settings.type == "f32")
    Contest<float>(driver, team, settings).run();
  else
    Contest<bfloat16>(driver, team, settings).run();
  fmt::print("Link again, both at the same time: {:.1f} GB/s each\n", link_rate(team, driver, true, settings.rounds));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const auto settings = settings_from(count, words);
  if (!settings) {
    fmt::print(stderr,
               "usage: cuvmm_all_reduce_bench [--type bf16|f32] [--from BYTES] [--to BYTES] [--rounds N] [--way NAME] "
               "[--chosen] [--all] [--in-place]\n");
    return 2;
  }
  try {
    return run(*settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuvmm_all_reduce_bench: {}\n", error.what());
    return 1;
  }
}
