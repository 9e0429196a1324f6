// The part of a random walk that sleeps and wakes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "shapes/walk_world.hpp"

namespace cuvmm::test {

// Two groups: in one a range whose content is kept and an alias of its first chunk; in the other a range whose content
// is discarded.
class SleeperWalk {
 public:
  SleeperWalk(const WalkWorld& world, const MappedRangeOptions& options, unsigned seed)
      : world_(world),
        random_(seed),
        options_(options),
        memory_(SleepableMemory::create(
            world.driver, {.staging_bytes = std::size_t{64} << 10, .copy_threads = 1, .poison = poison_byte})) {
    options_.capacity = 4 * page;
    begin_kept();
    begin_lost();
  }

  void step() {
    switch (draw(8)) {
      case 0:
      case 1:
        return sleep();
      case 2:
      case 3:
        return wake();
      case 4:
        return grow(draw(2) == 0 ? kept_ : lost_);
      case 5:
        return shrink(draw(2) == 0 ? kept_ : lost_);
      case 6:
        return alias();
      default:
        return draw(2) == 0 ? begin_kept() : begin_lost();
    }
  }

  // What is awake has its content and rights, what sleeps is refused.
  void check() {
    for (const Sleeper* each : {&kept_, &lost_}) {
      if (each->range->asleep()) {
        ASSERT_THROW(static_cast<void>(each->range->range()), InvalidUse);
        continue;
      }
      const MappedRange& range = each->range->range();
      ASSERT_EQ(range.size(), each->size);
      ASSERT_EQ(range.address(), each->address);
      for (std::size_t i = 0; i < each->tags.size(); ++i) {
        ASSERT_EQ(world_.read(each->address + i * page), each->tags[i]) << each->range->tag() << ", page " << i;
        for (const AccessGrant& grant : options_.grants)
          ASSERT_EQ(world_.rights(each->address + i * page, grant.location), grant.rights);
      }
    }
    if (alias_ && !alias_->asleep()) {
      ASSERT_EQ(world_.read(alias_->range().address()), alias_tag_) << "the alias";
    }
  }

 private:
  struct Sleeper {
    std::optional<SleepableRange> range;
    DeviceAddress address{};
    std::size_t size = 0;
    std::vector<std::uint64_t> tags;  // of each page of the content
    bool uncertain = false;           // it sleeps after a failure: what was to be discarded may be there in part
  };

  static constexpr std::size_t word = sizeof(std::uint64_t);
  static constexpr std::uint8_t poison_byte = 0xD5;
  static constexpr std::uint64_t poison = 0xD5D5D5D5D5D5D5D5;

  std::size_t draw(std::size_t below) { return random_() % below; }
  // Content of whole words, so that the tag of each page belongs to it.
  static constexpr std::size_t words(std::size_t count) { return count * word; }

  // At one of the next calls, in half of the steps.
  bool maybe_fault(std::initializer_list<driver::EntryPoint> points) {
    if (draw(2) == 0) return false;
    world_.fail(points.begin()[draw(points.size())], 1 + draw(3),
                draw(2) == 0 ? abi::CUDA_ERROR_UNKNOWN : abi::CUDA_ERROR_OUT_OF_MEMORY);
    return true;
  }

  void begin(Sleeper& sleeper, const std::string& tag, const SleepPolicy& policy) {
    sleeper = {};  // awake or asleep
    auto range = MappedRange::create(world_.driver, options_);
    sleeper.address = range.address();
    sleeper.range = memory_.add(tag, std::move(range), policy);
    grow(sleeper);
  }
  void begin_kept() {
    alias_.reset();
    constexpr std::array places{SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file};
    begin(kept_, "kept", {.content = places[draw(places.size())], .keep_backup = draw(2) == 0});
  }
  void begin_lost() { begin(lost_, "lost", {.content = SleepingContent::discarded}); }

  void grow(Sleeper& sleeper) {
    if (sleeper.range->asleep()) return;
    using driver::EntryPoint;
    const std::size_t bytes = words(1 + draw(page / word));
    const bool full = sleeper.size + bytes > 3 * page;
    const bool fault = maybe_fault({EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess});
    const auto grown = full ? Result<std::size_t>(std::size_t{0}) : sleeper.range->range().try_append(bytes);
    world_.faults.clear();
    ASSERT_TRUE(grown || fault) << grown.failure().message();
    if (full || !grown) return;
    sleeper.size += bytes;
    while (sleeper.tags.size() * page < sleeper.size) {
      sleeper.tags.push_back(++last_tag_);
      world_.write(sleeper.address + (sleeper.tags.size() - 1) * page, last_tag_);
    }
  }

  void shrink(Sleeper& sleeper) {
    if (sleeper.range->asleep()) return;
    sleeper.size = words(draw(sleeper.size / word + 1));
    if (sleeper.size == 0 && &sleeper == &kept_) alias_.reset();
    sleeper.range->range().truncate(sleeper.size);
    sleeper.tags.resize((sleeper.size + page - 1) / page);
  }

  // Of the first chunk, in the same group: it sleeps and wakes with the range, and is an alias again.
  void alias() {
    alias_.reset();
    if (kept_.range->asleep() || kept_.tags.empty()) return;
    MappedRangeOptions options = options_;
    options.capacity = 64 * page;
    auto range = MappedRange::create(world_.driver, options);
    range.append(kept_.range->range().memory_at(0));
    alias_ = memory_.add("kept", std::move(range), {.content = SleepingContent::pageable});
    alias_tag_ = kept_.tags[0];
  }

  std::vector<std::string> some_groups() {
    constexpr std::array choices{1, 2, 3};
    const int chosen = choices[draw(choices.size())];
    std::vector<std::string> groups;
    if ((chosen & 1) != 0) groups.emplace_back("kept");
    if ((chosen & 2) != 0) groups.emplace_back("lost");
    return groups;
  }
  std::vector<Sleeper*> sleepers_of(const std::vector<std::string>& groups) {
    std::vector<Sleeper*> found;
    for (const std::string& each : groups) found.push_back(each == "kept" ? &kept_ : &lost_);
    return found;
  }

  void sleep() {
    const std::vector<std::string> groups = some_groups();
    refuse_what_is_held(groups);
    using driver::EntryPoint;
    const bool fault = maybe_fault({EntryPoint::cuMemHostAlloc, EntryPoint::cuStreamCreate,
                                    EntryPoint::cuMemcpyDtoHAsync, EntryPoint::cuMemUnmap, EntryPoint::cuEventCreate});
    const auto slept = memory_.try_sleep(groups);
    world_.faults.clear();
    ASSERT_TRUE(slept || fault) << slept.failure().message();
    for (Sleeper* each : sleepers_of(groups)) {
      ASSERT_TRUE(!slept || each->range->asleep());
      if (!slept && each->range->asleep()) each->uncertain = true;
    }
  }

  // Somebody else has a share of what is to sleep.
  void refuse_what_is_held(const std::vector<std::string>& groups) {
    for (const Sleeper* each : sleepers_of(groups)) {
      if (each->range->asleep() || each->tags.empty() || draw(4) != 0) continue;
      const SharedPhysicalMemory share = each->range->range().memory_at(0);
      const auto refused = memory_.try_sleep(groups);
      ASSERT_FALSE(refused);
      ASSERT_EQ(refused.failure().kind, ErrorKind::invalid_use) << refused.failure().message();
      ASSERT_FALSE(each->range->asleep());
    }
  }

  void wake() {
    const std::vector<std::string> groups = some_groups();
    std::vector<Sleeper*> asleep = sleepers_of(groups);
    std::erase_if(asleep, [](const Sleeper* each) { return !each->range->asleep(); });
    using driver::EntryPoint;
    const bool fault =
        maybe_fault({EntryPoint::cuMemCreate, EntryPoint::cuMemMap, EntryPoint::cuMemSetAccess,
                     EntryPoint::cuMemcpyHtoDAsync, EntryPoint::cuStreamCreate, EntryPoint::cuMemsetD8Async});
    const auto woke = memory_.try_wake(groups);
    world_.faults.clear();
    ASSERT_TRUE(woke || fault) << woke.failure().message();
    for (Sleeper* each : asleep) {
      ASSERT_EQ(each->range->asleep(), !woke) << "all of them or none";
      if (woke && each == &lost_) note_what_is_lost();
    }
  }

  void note_what_is_lost() {
    for (std::size_t i = 0; i < lost_.tags.size(); ++i) {
      const std::uint64_t seen = world_.read(lost_.address + i * page);
      ASSERT_TRUE(seen == poison || (lost_.uncertain && seen == lost_.tags[i])) << "page " << i;
      lost_.tags[i] = ++last_tag_;
      world_.write(lost_.address + i * page, last_tag_);
    }
    lost_.uncertain = false;
  }

  WalkWorld world_;
  std::mt19937 random_;
  MappedRangeOptions options_;
  SleepableMemory memory_;
  Sleeper kept_;
  Sleeper lost_;
  std::optional<SleepableRange> alias_;
  std::uint64_t alias_tag_ = 0;
  std::uint64_t last_tag_ = std::uint64_t{1} << 32;  // none that the rest of a walk has
};

}  // namespace cuvmm::test
