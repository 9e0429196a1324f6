// A team of threads as ranks: symmetric memory, a multicast address of it that faults when it is touched, and what
// collectives meet by.
#pragma once

#include <sys/mman.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cuvmm/gpu/collective_team.cuh"
#include "cuvmm/gpu/host_memory.cuh"
#include "cuvmm/gpu/replicated_multicast.cuh"

namespace cuvmm::gpu::test {

class HostTeam {
 public:
  struct Options {
    std::uint32_t ranks = 2;
    std::uint32_t blocks = 1;
    std::uint32_t lines_per_block = 64;
    std::size_t staging_packs = 8;
    std::size_t data_bytes = 4096;
    std::uint64_t time_limit = 60'000'000'000;
  };

  explicit HostTeam(const Options& options) : options_(options), memories_(options.ranks) {
    for (auto& each : memories_) {
      each.reset(static_cast<std::byte*>(::operator new (bytes(), std::align_val_t{128})));
      std::memset(each.get(), 0, bytes());
    }
    multicast_ = static_cast<std::byte*>(::mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (multicast_ == MAP_FAILED) throw std::runtime_error("no addresses for a multicast object");
    std::vector<std::byte*> replicas;
    for (auto& each : memories_) replicas.push_back(each.get());
    behind_ = std::make_unique<ReplicatedMulticast>(multicast_, bytes(), replicas);
    memory_ = HostMemory(behind_.get());
  }
  ~HostTeam() { ::munmap(multicast_, bytes()); }
  HostTeam(const HostTeam&) = delete;
  HostTeam& operator=(const HostTeam&) = delete;
  HostTeam(HostTeam&&) = delete;
  HostTeam& operator=(HostTeam&&) = delete;

  [[nodiscard]] std::uint32_t ranks() const { return options_.ranks; }
  [[nodiscard]] const HostMemory& memory() const { return memory_; }

  // What lies at an offset of the data of a rank, and of all ranks at once.
  template <class T>
  [[nodiscard]] T* data(std::uint32_t rank, std::size_t offset) const {
    return reinterpret_cast<T*>(memories_[rank].get() + data_offset() + offset);
  }
  template <class T>
  [[nodiscard]] T* multicast_data(std::size_t offset) const {
    return reinterpret_cast<T*>(multicast_ + data_offset() + offset);
  }
  [[nodiscard]] BlockState* states(std::uint32_t rank) const {
    return reinterpret_cast<BlockState*>(memories_[rank].get() + states_offset());
  }
  [[nodiscard]] Arrivals* arrivals(std::uint32_t rank) const {
    return reinterpret_cast<Arrivals*>(memories_[rank].get());
  }
  [[nodiscard]] Line* lines(std::uint32_t rank) const {
    return reinterpret_cast<Line*>(memories_[rank].get() + lines_offset());
  }
  [[nodiscard]] std::size_t lines_of_a_rank() const {
    return line_count(options_.ranks, options_.blocks, options_.lines_per_block);
  }

  [[nodiscard]] Team team(std::uint32_t rank) const {
    Team team{};
    team.rank = rank;
    team.ranks = options_.ranks;
    team.time_limit = options_.time_limit;
    team.states = states(rank);
    team.blocks = options_.blocks;
    team.lines_per_block = options_.lines_per_block;
    team.staging_packs = options_.staging_packs;
    for (std::uint32_t of = 0; of < options_.ranks; ++of) {
      team.arrivals[of] = arrivals(of);
      team.lines[of] = lines(of);
      team.staging[of] = reinterpret_cast<Pack*>(memories_[of].get() + staging_offset());
    }
    team.multicast_arrivals = reinterpret_cast<Arrivals*>(multicast_);
    return team;
  }

  // As if `epoch` barriers and exchanges had been before.
  void start_at(std::uint32_t epoch) {
    for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
      for (std::uint32_t block = 0; block < options_.blocks; ++block) {
        states(rank)[block] = {epoch, epoch, 0, epoch};
        for (std::uint32_t& each : arrivals(rank)[block].of) each = epoch;
      }
    }
  }

  // Runs work(rank) in a thread for each rank.
  void run(const std::function<void(std::uint32_t)>& work) const {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) threads.emplace_back([&work, rank] { work(rank); });
    for (std::thread& each : threads) each.join();
  }

 private:
  struct Deleter {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{128}); }
  };
  [[nodiscard]] std::size_t states_offset() const { return options_.blocks * sizeof(Arrivals); }
  [[nodiscard]] std::size_t lines_offset() const { return states_offset() + options_.blocks * sizeof(BlockState); }
  [[nodiscard]] std::size_t staging_offset() const { return lines_offset() + lines_of_a_rank() * sizeof(Line); }
  [[nodiscard]] std::size_t data_offset() const {
    const std::size_t staging = staging_count(options_.ranks, options_.staging_packs) * sizeof(Pack);
    return (staging_offset() + staging + 127) / 128 * 128;
  }
  [[nodiscard]] std::size_t bytes() const { return data_offset() + options_.data_bytes; }

  Options options_;
  std::vector<std::unique_ptr<std::byte, Deleter>> memories_;
  std::byte* multicast_ = nullptr;
  std::unique_ptr<ReplicatedMulticast> behind_;
  HostMemory memory_;
};

// A block of several threads of the CPU.
class ThreadedBlock {
 public:
  struct Shared {
    explicit Shared(std::uint32_t threads) : count(threads), meeting(threads) {}
    std::uint32_t count;
    std::barrier<> meeting;
    std::uint32_t conditions = 0;
  };

  ThreadedBlock(Shared& shared, std::uint32_t thread, std::uint32_t index, std::uint32_t count)
      : shared_(&shared), thread_(thread), index_(index), count_(count) {}

  [[nodiscard]] std::uint32_t thread() const { return thread_; }
  [[nodiscard]] std::uint32_t threads() const { return shared_->count; }
  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] std::uint32_t count() const { return count_; }
  void synchronize() const { shared_->meeting.arrive_and_wait(); }
  [[nodiscard]] bool any(bool condition) const {
    if (condition) __atomic_fetch_add(&shared_->conditions, 1U, __ATOMIC_RELAXED);
    synchronize();
    const bool result = __atomic_load_n(&shared_->conditions, __ATOMIC_RELAXED) != 0;
    synchronize();
    if (thread_ == 0) __atomic_store_n(&shared_->conditions, 0U, __ATOMIC_RELAXED);
    synchronize();
    return result;
  }

 private:
  Shared* shared_;
  std::uint32_t thread_;
  std::uint32_t index_;
  std::uint32_t count_;
};

}  // namespace cuvmm::gpu::test
