#include "cuvmm/sleepable_memory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "backoff.hpp"
#include "refusal.hpp"
#include "sleep/entry.hpp"
#include "sleep/falling_asleep.hpp"
#include "sleep/waking.hpp"

namespace cuvmm {

using sleep::Entries;
using sleep::Entry;
using sleep::State;

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t buffers_of_a_thread = 2;
constexpr unsigned most_threads = 64;

constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 365);

using Tags = std::set<std::string>;

Entries those_that_are(State state, const Entries& entries) {
  Entries found;
  for (const auto& each : entries)
    if (each->state == state && !each->is_gone()) found.push_back(each);
  return found;
}

[[gnu::cold]] Failure negative_wait(std::string_view call, std::chrono::milliseconds wait) {
  return invalid_use(call, fmt::format("device_wait = {} ms", wait.count()), "A wait is not negative",
                     "Give 0 to wait for nothing");
}

[[gnu::cold]] Failure is_asleep(const Entry& entry) {
  const bool changes = entry.state == State::changing;
  return invalid_use(
      "SleepableRange::range", entry.description(),
      changes ? "It is falling asleep or waking, by a call that has not returned" : "It is asleep: nothing is mapped",
      changes ? "Use it when that call has returned and it is awake; an observer is told what changes"
              : fmt::format("Wake it first: SleepableMemory::wake(\"{}\")", entry.tag));
}

}  // namespace

std::string_view to_string(SleepingContent content) noexcept {
  switch (content) {
    case SleepingContent::discarded:
      return "discarded";
    case SleepingContent::pinned:
      return "pinned";
    case SleepingContent::pageable:
      return "pageable";
    case SleepingContent::file:
      return "file";
  }
  return "unknown";
}

// --- One range.

MappedRange& SleepableRange::range() {
  Entry& entry = owned(entry_, "SleepableRange::range", "sleepable range");
  if (entry.state != State::awake) raise(is_asleep(entry));
  return entry.range;
}
const MappedRange& SleepableRange::range() const {
  const Entry& entry = owned(entry_, "SleepableRange::range", "sleepable range");
  if (entry.state != State::awake) raise(is_asleep(entry));
  return entry.range;
}
DeviceAddress SleepableRange::address() const noexcept {
  return entry_ ? entry_->address : DeviceAddress();
}
bool SleepableRange::asleep() const noexcept {
  return entry_ && entry_->state != State::awake;
}
const std::string& SleepableRange::tag() const noexcept {
  static const std::string none;
  return entry_ ? entry_->tag : none;
}
const std::string& SleepableRange::name() const noexcept {
  static const std::string none;
  return entry_ ? entry_->name : none;
}

// --- Groups.

class SleepableMemory::Impl {
 public:
  Impl(Driver driver, const SleepableMemoryOptions& options) : driver_(std::move(driver)), options_(options) {}

  // Living ranges of some groups, which no other thread changes as long as this lives.
  class Claim {
   public:
    Claim(Impl& memory, Tags tags, Entries entries)
        : memory_(&memory), tags_(std::move(tags)), entries_(std::move(entries)) {}
    Claim(Claim&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)),
          tags_(std::move(other.tags_)),
          entries_(std::move(other.entries_)) {}
    Claim& operator=(Claim&&) = delete;
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
      if (memory_ != nullptr) memory_->release(tags_);
    }
    [[nodiscard]] const Entries& entries() const noexcept { return entries_; }

   private:
    Impl* memory_;
    Tags tags_;
    Entries entries_;
  };

  // Of all groups where none are named.
  Result<Claim> claim(std::string_view call, std::optional<std::span<const std::string>> asked,
                      std::chrono::milliseconds wait);
  void add(std::list<std::weak_ptr<Entry>>& members) noexcept;
  Entries living() const;
  Result<SleepReport> sleep(std::span<const std::string> tags, const SleepOptions& options);
  Result<WakeReport> wake(std::span<const std::string> tags);

  const Driver driver_;
  const SleepableMemoryOptions options_;

 private:
  Entries living_of(const Tags& tags) const;  // the mutex is held
  void release(const Tags& tags) noexcept;
  [[nodiscard]] sleep::CopyOptions copy_options() const noexcept {
    return {options_.staging_bytes, options_.copy_threads};
  }
  static Result<void> fall_asleep(sleep::FallingAsleep& attempt, const SleepOptions& options,
                                  std::chrono::milliseconds wait, const sleep::CopyOptions& copy);

  mutable std::mutex mutex_;
  std::condition_variable released_;
  std::list<std::weak_ptr<Entry>> entries_;
  std::map<std::string, std::thread::id> claimed_;  // by that thread
};

void SleepableMemory::Impl::add(std::list<std::weak_ptr<Entry>>& members) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& each) { return each.expired(); });
  entries_.splice(entries_.end(), members);
}

Entries SleepableMemory::Impl::living() const {
  const std::lock_guard lock(mutex_);
  Entries found;
  for (const auto& each : entries_)
    if (auto entry = each.lock()) found.push_back(std::move(entry));
  return found;
}

Entries SleepableMemory::Impl::living_of(const Tags& tags) const {
  Entries found;
  for (const auto& each : entries_)
    if (auto entry = each.lock(); entry && tags.contains(entry->tag)) found.push_back(std::move(entry));
  return found;
}

void SleepableMemory::Impl::release(const Tags& tags) noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& each : tags) claimed_.erase(each);
  }
  released_.notify_all();
}

Result<SleepableMemory::Impl::Claim> SleepableMemory::Impl::claim(std::string_view call,
                                                                  std::optional<std::span<const std::string>> asked,
                                                                  std::chrono::milliseconds wait) {
  Tags tags;
  if (asked) tags.insert(asked->begin(), asked->end());
  const auto deadline = deadline_after(wait);
  const auto is_claimed = [&](const std::string& each) { return claimed_.contains(each); };
  const auto is_free = [&] { return asked ? std::none_of(tags.begin(), tags.end(), is_claimed) : claimed_.empty(); };
  std::unique_lock lock(mutex_);
  for (const auto& [tag, thread] : claimed_)  // which would wait for itself
    if (thread == std::this_thread::get_id() && (!asked || tags.contains(tag)))
      return invalid_use(call, fmt::format("tag = '{}'", tag),
                         "This thread is putting that group to sleep, or waking it, by a call that has not returned",
                         "Let observers and reclaim hooks name other groups");
  if (!released_.wait_until(lock, deadline, is_free)) {
    Failure failure;
    failure.kind = ErrorKind::timed_out;
    failure.call = call;
    failure.arguments = fmt::format("tags = {}", fmt::join(tags, ", "));
    failure.reason = "another thread is still putting one of these groups to sleep, or waking it";
    failure.way_out = "Let one thread change a group, or wait longer";
    return failure;
  }
  if (!asked)
    for (const auto& each : entries_)
      if (const auto entry = each.lock()) tags.insert(entry->tag);
  Entries entries = living_of(tags);
  for (const std::string& tag : tags)
    if (std::none_of(entries.begin(), entries.end(), [&](const auto& each) { return each->tag == tag; })) {
      Tags known;
      for (const auto& each : entries_)
        if (const auto entry = each.lock()) known.insert(entry->tag);
      return invalid_use(call, fmt::format("tag = '{}'", tag), "No living range has that tag",
                         known.empty() ? "Add ranges to it first: SleepableMemory::add"
                                       : fmt::format("Name a group that there is: {}", fmt::join(known, ", ")));
    }
  auto claimed = claimed_;
  for (const std::string& each : tags) claimed.emplace(each, std::this_thread::get_id());
  Claim claim(*this, std::move(tags), std::move(entries));
  claimed_.swap(claimed);
  return claim;
}

Result<void> SleepableMemory::Impl::fall_asleep(sleep::FallingAsleep& attempt, const SleepOptions& options,
                                                std::chrono::milliseconds wait, const sleep::CopyOptions& copy) {
  if (auto planned = attempt.plan(options.despite_pins); !planned) return planned;
  if (auto waited = attempt.wait_for_work(deadline_after(wait)); !waited) return waited;
  if (auto saved = attempt.save(copy); !saved) return saved;
  return attempt.unmap();
}

Result<SleepReport> SleepableMemory::Impl::sleep(std::span<const std::string> tags, const SleepOptions& options) {
  if (options.device_wait && *options.device_wait < std::chrono::milliseconds::zero())
    return negative_wait("SleepableMemory::sleep", *options.device_wait);
  const auto wait = std::min(options.device_wait.value_or(options_.device_wait), longest_wait);
  auto claimed = claim("SleepableMemory::sleep", tags, wait);
  if (!claimed) return claimed.failure();
  const sleep::Change change(those_that_are(State::awake, claimed->entries()), State::awake);
  sleep::FallingAsleep attempt(driver_, change.entries(), those_that_are(State::asleep, claimed->entries()));
  const auto result = fall_asleep(attempt, options, wait, copy_options());
  if (!result) return result.failure();
  return attempt.give_back();
}

Result<WakeReport> SleepableMemory::Impl::wake(std::span<const std::string> tags) {
  const auto wait = std::min(options_.device_wait, longest_wait);
  auto claimed = claim("SleepableMemory::wake", tags, wait);
  if (!claimed) return claimed.failure();
  const sleep::Change change(those_that_are(State::asleep, claimed->entries()), State::asleep);
  sleep::Waking attempt(driver_, change.entries());
  if (auto waited = attempt.wait_for_left_copies(deadline_after(wait)); !waited) return waited.failure();
  if (auto acquired = attempt.acquire(); !acquired) return acquired.failure();
  if (auto mapped = attempt.map(); !mapped) return mapped.failure();
  if (auto restored = attempt.restore(copy_options(), options_.poison); !restored) return restored.failure();
  return attempt.commit();
}

// --- What users see.

SleepableMemory::SleepableMemory(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SleepableMemory::SleepableMemory(SleepableMemory&&) noexcept = default;
SleepableMemory& SleepableMemory::operator=(SleepableMemory&&) noexcept = default;
SleepableMemory::~SleepableMemory() = default;

SleepableMemory SleepableMemory::create(const Driver& driver, const SleepableMemoryOptions& options) {
  const auto refuse = [](std::string arguments, std::string rule, std::string way_out) {
    raise(invalid_use("SleepableMemory::create", std::move(arguments), std::move(rule), std::move(way_out)));
  };
  if (options.copy_threads < 1 || options.copy_threads > most_threads)
    refuse(fmt::format("copy_threads = {}", options.copy_threads), fmt::format("There are 1 to {}", most_threads),
           "Give a number in between");
  if (options.staging_bytes < options.copy_threads * buffers_of_a_thread * page)
    refuse(fmt::format("staging_bytes = {}, copy_threads = {}", options.staging_bytes, options.copy_threads),
           "Each thread needs two pages", "Give more bytes, 64 MiB for instance, or fewer threads");
  if (options.device_wait < std::chrono::milliseconds::zero())
    raise(negative_wait("SleepableMemory::create", options.device_wait));
  return SleepableMemory(std::make_unique<Impl>(driver, options));
}

SleepableRange SleepableMemory::add(std::string tag, MappedRange&& range, const SleepPolicy& policy, std::string name) {
  constexpr std::string_view adding = "SleepableMemory::add";
  Impl& all = owned(impl_, adding, "sleepable memory");
  if (tag.empty()) raise(invalid_use(adding, "tag = ''", "A group has a name", "Choose one, such as \"weights\""));
  if (range.granularity() == 0) raise(owns_nothing(adding, fmt::format("tag = '{}', range", tag)));
  if (range.driver() != all.driver_)
    raise(invalid_use(adding, fmt::format("tag = '{}'", tag), "The range is of another driver",
                      "Make the range and the sleepable memory with one Driver"));
  if (policy.content > SleepingContent::file)
    raise(invalid_use(adding, fmt::format("policy.content = {}", static_cast<int>(policy.content)),
                      "There is no such place for content", "Name one of SleepingContent"));
  std::list<std::weak_ptr<Entry>> member(1);  // what may fail comes before the range is taken
  auto entry = std::make_shared<Entry>(std::move(tag), std::move(name), std::move(range), policy);
  member.front() = entry;
  all.add(member);
  return SleepableRange(std::move(entry));
}

Result<SleepReport> SleepableMemory::try_sleep(std::span<const std::string> tags, const SleepOptions& options) try {
  return owned(impl_, "SleepableMemory::sleep", "sleepable memory").sleep(tags, options);
} catch (const Error& error) {  // of a context that could not be had
  return error.failure();
}
SleepReport SleepableMemory::sleep(std::span<const std::string> tags, const SleepOptions& options) {
  return try_sleep(tags, options).value();
}
SleepReport SleepableMemory::sleep(std::initializer_list<std::string> tags, const SleepOptions& options) {
  return sleep(std::span(tags.begin(), tags.size()), options);
}
SleepReport SleepableMemory::sleep(const std::string& tag, const SleepOptions& options) {
  return sleep(std::span(&tag, 1), options);
}

Result<WakeReport> SleepableMemory::try_wake(std::span<const std::string> tags) try {
  return owned(impl_, "SleepableMemory::wake", "sleepable memory").wake(tags);
} catch (const Error& error) {
  return error.failure();
}
WakeReport SleepableMemory::wake(std::span<const std::string> tags) {
  return try_wake(tags).value();
}
WakeReport SleepableMemory::wake(std::initializer_list<std::string> tags) {
  return wake(std::span(tags.begin(), tags.size()));
}
WakeReport SleepableMemory::wake(const std::string& tag) {
  return wake(std::span(&tag, 1));
}

std::vector<std::string> SleepableMemory::tags() const {
  if (!impl_) return {};
  Tags tags;
  for (const auto& each : impl_->living()) tags.insert(each->tag);
  return {tags.begin(), tags.end()};
}

GroupState SleepableMemory::state(const std::string& tag) const {
  std::size_t ranges = 0;
  std::size_t awake = 0;
  for (const auto& each : owned(impl_, "SleepableMemory::state", "sleepable memory").living())
    if (each->tag == tag) {
      ++ranges;
      if (each->state == State::awake) ++awake;
    }
  if (ranges == 0)
    raise(invalid_use("SleepableMemory::state", fmt::format("tag = '{}'", tag), "No living range has that tag",
                      "Name one of tags()"));
  if (awake == ranges) return GroupState::awake;
  return awake == 0 ? GroupState::asleep : GroupState::partly_asleep;
}

SleepHoldings SleepableMemory::holdings() const {
  if (!impl_) return {};
  const auto claim =
      impl_->claim("SleepableMemory::holdings", std::nullopt, std::min(impl_->options_.device_wait, longest_wait))
          .value();
  SleepHoldings held;
  std::set<const sleep::SleepingMemory*> known;
  std::set<const PhysicalMemory*> mapped;
  for (const auto& each : claim.entries()) {
    if (each->is_gone()) continue;
    for (const ChunkInfo& chunk : each->range.chunks()) {
      const SharedPhysicalMemory memory = each->range.memory_at(chunk.offset);
      if (mapped.insert(&memory.memory()).second) held.awake_bytes += chunk.bytes;
    }
    for (const sleep::Place& place : each->places)
      if (!place.memory->memory && known.insert(place.memory.get()).second) held.asleep_bytes += place.memory->bytes;
    if (!each->backup) continue;
    switch (each->backup->kind()) {
      case SleepingContent::pinned:
        held.pinned_bytes += each->backup->size();
        break;
      case SleepingContent::pageable:
        held.pageable_bytes += each->backup->size();
        break;
      case SleepingContent::file:
        held.file_bytes += each->backup->size();
        break;
      case SleepingContent::discarded:
        break;
    }
  }
  return held;
}

const Driver& SleepableMemory::driver() const {
  return owned(impl_, "SleepableMemory::driver", "sleepable memory").driver_;
}

}  // namespace cuvmm
