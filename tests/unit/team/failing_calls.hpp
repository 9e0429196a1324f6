// Each call of the driver that a rank makes, made to fail once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "cuvmm/team/symmetric_memory.hpp"
#include "recording_handler.hpp"
#include "team_machine.hpp"

namespace cuvmm::team::test {

// What the ranks of a team do before, what is to be done by all or none, and what they do when it was.
struct Attempt {
  std::function<void(const std::shared_ptr<Team>&)> before = [](const auto&) {};
  std::function<Result<void>(const std::shared_ptr<Team>&)> attempt;
  std::function<void(const std::shared_ptr<Team>&)> after;
};

// Nobody goes on, all name the rank, nothing is left, and all can try again.
inline void fail_at_each_call(TeamMachine& machine, const Attempt& work) {
  const cuvmm::test::RecordingHandler reports;
  const int ranks = machine.ranks();
  for (const int failing : {0, ranks - 1})
    for (std::uint64_t call = 1;; ++call) {
      std::atomic<int> failed = 0;
      std::atomic<bool> injected = false;
      machine.run([&](const auto& team) {
        work.before(team);
        if (team->rank() == failing) {
          const auto so_far = machine.faults(failing).injected();
          machine.faults(failing).inject({.entry_point = std::nullopt, .call = call});
          const auto result = work.attempt(team);
          injected = machine.faults(failing).injected() > so_far;
          machine.faults(failing).clear();
          if (!result) ++failed;
        } else if (const auto result = work.attempt(team); !result) {
          ++failed;
          EXPECT_NE(result.failure().message().find("rank " + std::to_string(failing) + " (process"), std::string::npos)
              << result.failure().message();
        }
        team->vote("tried", {}, soon());
        EXPECT_TRUE(failed == 0 || failed == ranks) << failed << " at call " << call;
        team->vote("counted", {}, soon());
        if (failed == ranks) {
          const auto again = work.attempt(team);
          EXPECT_TRUE(again) << again.failure().message();
        }
        work.after(team);
      });
      EXPECT_TRUE(machine.nothing_live()) << "call " << call << " of rank " << failing;
      if (!injected) break;
      ASSERT_LT(call, 1000u);
    }
}

// An attempt.
inline Result<void> grow_from_1_to_4_mib(SymmetricMemory& memory) {
  const auto grown = memory.try_grow(3_MiB, soon());
  EXPECT_EQ(memory.size(), grown ? 4_MiB : 1_MiB);
  if (!grown) return grown.failure();
  return {};
}

}  // namespace cuvmm::team::test
